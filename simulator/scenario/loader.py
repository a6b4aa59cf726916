"""Load a scenario's TOML file and list its points."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import msgspec

from penstock.toml_files import TomlFileError, read_toml
from simulator.scenario.errors import ScenarioError
from simulator.scenario.keys import assign, convert
from simulator.scenario.models import MODELS


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One run to do: the settings that set it apart from the scenario's other runs, and the model's input."""

    source: str
    settings: dict[str, Any]
    model: str
    spec: Any
    seed: int


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that scenarios of all models share."""

    model: str
    title: str = ""
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    sweep: dict[str, list[Any]] = {}


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario as written, with the settings of the command line. ``source`` is its file, for error messages."""

    source: str
    title: str
    model: str
    sweep: dict[str, list[Any]]
    document: dict[str, Any]

    def points(self) -> list[Point]:
        """Return one point for each combination of the sweep's values, the last key varying fastest.

        Raises:
            ScenarioError: ``FILE: key: fault``, for a key or a value that the model does not know.
        """
        combinations = [dict(zip(self.sweep, values, strict=True)) for values in product(*self.sweep.values())]
        try:
            return [self._point(settings) for settings in combinations]
        except ScenarioError as error:
            raise ScenarioError(f"{self.source}: {error}") from None

    def _point(self, settings: dict[str, Any]) -> Point:
        document = copy.deepcopy(self.document)
        for key, value in settings.items():
            assign(document, key, value)
        head = convert({key: document.pop(key) for key in _HEAD if key in document}, _Head)
        spec = convert(document, MODELS[self.model].spec, beside=_HEAD)
        return Point(source=self.source, settings=settings, model=self.model, spec=spec, seed=head.seed)


_HEAD = _Head.__struct_fields__


def load(path: Path, settings: Mapping[str, Any] | None = None) -> Scenario:
    """Read a scenario's file; ``settings`` (dotted key → value) replace the file's values and swept keys.

    Raises:
        ScenarioError: the file cannot be read, or one of the keys that all models share is wrong.
    """
    document = _read(path)
    try:
        sweep = document.pop("sweep", {})
        for key, value in (settings or {}).items():
            if isinstance(sweep, dict) and sweep.pop(key, None) is not None and isinstance(value, list):
                sweep[key] = value
            else:
                assign(document, key, value)
        head = convert({key: document[key] for key in _HEAD if key in document} | {"sweep": sweep}, _Head)
        _check(head)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None
    return Scenario(source=str(path), title=head.title, model=head.model, sweep=head.sweep, document=document)


def _check(head: _Head) -> None:
    if head.model not in MODELS:
        raise ScenarioError(f"model: unknown model {head.model!r}; one of {', '.join(MODELS)}")
    for key, values in head.sweep.items():
        if not values:
            raise ScenarioError(f"sweep: {key!r}: no value is given")
        if key == "model" or key == "title":
            raise ScenarioError(f"sweep: {key!r} cannot be varied; write a scenario for each")


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)[1]
    except TomlFileError as error:
        raise ScenarioError(str(error)) from None
