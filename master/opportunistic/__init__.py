"""PURE. Opportunistic work on resources that regular work leaves unused (UBIS, Algorithm 1)."""

from master.opportunistic.backoff import Pause, SlackLimit, pause_after
from master.opportunistic.ubis import Amounts, Asked, Given, Slack, why_not

__all__ = ["Amounts", "Asked", "Given", "Pause", "Slack", "SlackLimit", "pause_after", "why_not"]
