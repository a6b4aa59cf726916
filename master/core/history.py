"""What recurring jobs needed before: their R until they have said it themselves (Ursa §4.2.2)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model import KINDS

#: (user, name of the job): the same name of another user is another job.
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Needed:
    """Of a whole job: bytes per kind of the tasks that were placed, and container-seconds that it received."""

    work: tuple[float, ...] = (0.0,) * len(KINDS)
    service_s: float = 0.0


class History:
    """Bounded: the name that was used the longest ago is forgotten first."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._known: dict[Name, Needed] = {}

    def of(self, name: Name) -> Needed | None:
        """What a job of this name needed, as far as is known."""
        return self._known.get(name)

    def learn(self, name: Name, needed: Needed) -> None:
        """A job of this name is done. The last run counts as much as all before it: inputs grow and shrink."""
        before = self._known.pop(name, None)
        if before is not None:
            work = tuple((old + new) / 2 for old, new in zip(before.work, needed.work, strict=True))
            needed = Needed(work, (before.service_s + needed.service_s) / 2)
        elif len(self._known) >= self._most:
            self._known.pop(next(iter(self._known)))
        self._known[name] = needed
