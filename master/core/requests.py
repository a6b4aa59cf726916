"""The ``decide`` requests on one connection of a node: gathered, then numbered and sent, then answered once."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.wire.master_api import AnyDecision, Assign

#: Largest size of one request's decisions; far below the frame limit, and a node processes it in milliseconds.
_REQUEST_BYTES = 1024 * 1024


@dataclass(slots=True)
class Requests:
    """The requests to a node; every connection of the node begins with a new object."""

    number: int = 0  # of the latest request that was sent
    unanswered: dict[int, list[AnyDecision]] = field(default_factory=dict)
    gathered: list[list[AnyDecision]] = field(default_factory=list)  # the requests after `number`
    _weight_bytes: int = 0  # of the last one of them

    def add(self, decision: AnyDecision) -> int:
        """Add a decision to the next request; return the request's number."""
        weight = _weight_bytes(decision)
        if not self.gathered or self._weight_bytes + weight > _REQUEST_BYTES:
            self.gathered.append([])
            self._weight_bytes = 0
        self.gathered[-1].append(decision)
        self._weight_bytes += weight
        return self.number + len(self.gathered)

    def send(self) -> list[tuple[int, list[AnyDecision]]]:
        """Return the gathered requests with their numbers; they are now to be answered."""
        numbered = list(enumerate(self.gathered, self.number + 1))
        self.unanswered.update(numbered)
        self.number += len(numbered)
        self.gathered = []
        return numbered

    def answered(self, number: int) -> list[AnyDecision]:
        """Return the decisions of an answered request; none where it was sent on another connection."""
        return self.unanswered.pop(number, [])


def _weight_bytes(decision: AnyDecision) -> int:
    """Return the approximate bytes of a decision on the wire, so that no request exceeds the frame limit."""
    weight = 512 + len(decision.why)
    if isinstance(decision, Assign) and decision.request.command is not None:
        command = decision.request.command
        weight += sum(len(text) + 8 for text in (*command.argv, *command.env, *command.env.values()))
        weight += 16 * len(decision.request.nodes)
        weight += 4 * 9 * decision.profile.slots if decision.profile is not None else 0
    return weight
