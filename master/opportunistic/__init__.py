"""PURE. Opportunistic work on resources that regular work leaves unused (UBIS, Algorithm 1)."""

from master.opportunistic.backoff import Pause, SlackLimit, pause_after
from master.opportunistic.ubis import Asked, Slack, why_not

__all__ = ["Asked", "Pause", "Slack", "SlackLimit", "pause_after", "why_not"]
