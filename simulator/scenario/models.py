"""The simulator's models, by the names used in scenarios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec

from simulator.report import Report


@dataclass(frozen=True, slots=True)
class Model:
    """A package with ``Spec``, decoded from a scenario's tables, and ``run(spec, seed)``. Imported at first use."""

    package: str
    what: str

    @property
    def spec(self) -> type[msgspec.Struct]:
        """Return the declaration of the model's keys."""
        found: type[msgspec.Struct] = import_module(self.package).Spec
        return found

    @property
    def run(self) -> Callable[[Any, int], Report]:
        """Return ``run(spec, seed)``: equal arguments give equal reports. ValueError: an impossible spec."""
        found: Callable[[Any, int], Report] = import_module(self.package).run
        return found


MODELS: dict[str, Model] = {
    "fluid": Model("simulator.fluid", "jobs with a size on one server that all of them share continuously"),
    "executors": Model("simulator.executors", "executors whose demand varies, packed on machines"),
    "tasks": Model("simulator.tasks", "monotasks and containers on the agents' and the master's own cores"),
}
