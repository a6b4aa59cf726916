"""PURE. Opportunistic work on resources that regular work leaves unused (UBIS, Algorithm 1)."""

from master.opportunistic.backoff import Pause, SlackLimit, pause_after
from master.opportunistic.ubis import Slack, SlackDemand, why_not

__all__ = ["Pause", "Slack", "SlackDemand", "SlackLimit", "pause_after", "why_not"]
