"""What an event leads to: instructions, in their order, and counts. Decisions become requests, one node's together."""

from __future__ import annotations

from collections import Counter

from master.core.instructions import (
    AcknowledgeEnd,
    Explain,
    Hangup,
    Instruction,
    Keep,
    Predict,
    SendDecisions,
    StoreRun,
)
from master.core.membership import Membership
from penstock.wire.master_api import AnyDecision


class Outbox:
    """Numbers the requests of each node; a request that is still open takes further decisions."""

    def __init__(self, members: Membership) -> None:
        self._members = members
        self.counts: Counter[str] = Counter()  # since the start, for the status and the metrics
        self._spoken_to: dict[str, None] = {}
        self._out: list[Instruction] = []

    def propose(self, node: str, decision: AnyDecision) -> int:
        """Add a decision to the node's next request; return its number, or 0 where the node is not connected."""
        known = self._members.nodes.get(node)
        if known is None or not known.connected:
            return 0
        self._spoken_to[node] = None
        return known.requests.add(decision)

    def instruct(self, instruction: Predict | StoreRun | AcknowledgeEnd | Hangup) -> None:
        """Emit an instruction that belongs to no node's next request."""
        self._out.append(instruction)

    def explain(self, what: str, **facts: object) -> None:
        """Emit a log entry."""
        self._out.append(Explain(what, facts))

    def hand_over(self, kept: Keep | None) -> list[Instruction]:
        """Number the proposed decisions, and return all instructions; ``kept``, the changes to be stored, is last."""
        for name in self._spoken_to:
            node = self._members.nodes.get(name)
            if node is None:
                continue
            for number, decisions in node.requests.send():
                self.counts["decisions"] += len(decisions)
                self._out.append(SendDecisions(name, number, decisions))
        self._spoken_to.clear()
        if kept is not None:
            self._out.append(kept)
        out, self._out = self._out, []
        return out
