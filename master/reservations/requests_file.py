"""The input file of ``penstock plan``: a cluster, its bundles, and the requests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec

from master.reservations.plan import Plan
from master.reservations.rdl import (
    Bundle,
    Calendar,
    Expression,
    RdlError,
    Recurrence,
    Request,
    Wording,
    atoms_of,
    from_json,
    normalized,
    parse,
    parse_bundle,
)
from master.reservations.rdl.calendar import LAST_STEP
from penstock.model.decode_errors import told
from penstock.model.units import QuantityError, parse_duration_s

#: A shorter step is taken for a mistake.
_SHORTEST_STEP_S = 1e-3
_DEFAULT_STEP = "1s"
_DEFAULT_BEGINS = "1970-01-01T00:00:00Z"


class _Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Capacity(_Struct, frozen=True, kw_only=True):
    since: str | int = 0
    bundle: str


class _Entry(_Struct, frozen=True, kw_only=True):
    name: str
    rdl: str | dict[str, Any]
    owner: str = ""


class _File(_Struct, frozen=True, kw_only=True):
    capacity: str | list[_Capacity]
    requests: list[_Entry]
    bundles: dict[str, str] = {}
    step: str | None = None
    begins: str | None = None
    horizon: str | int | None = None


class RequestsError(ValueError):
    """One line: the file, the key, and the error."""


@dataclass(frozen=True, slots=True)
class NamedRequest:
    """One request, in its normal form; each turn of a recurring request is a request of its own."""

    name: str
    owner: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Requests:
    """The content of a file: the empty cluster, the requests, how far ahead to plan (steps), and the wording of
    refusals.
    """

    plan: Plan
    requests: list[NamedRequest]
    horizon: int
    wording: Wording


def read(data: bytes, name: str) -> Requests:
    """Return the content of a file's bytes.

    Raises: RequestsError: the content is invalid.
    """
    try:
        file = msgspec.json.decode(data, type=_File)
    except UnicodeDecodeError as error:
        raise RequestsError(f"{name}: not UTF-8: {error.reason} at byte {error.start}") from None
    except msgspec.DecodeError as error:
        raise RequestsError(f"{name}: {told(error, _File)}") from None
    calendar = _calendar(file, name)
    try:
        bundles = {key: parse_bundle(text) for key, text in file.bundles.items()}
        plan = _plan(file.capacity, calendar)
        horizon = None if file.horizon is None else calendar.time(str(file.horizon), last=True)
    except RdlError as error:
        raise RequestsError(f"{name}: bundles, capacity, horizon: {error}") from None
    parsed: list[tuple[_Entry, Request]] = []
    for index, each in enumerate(file.requests):
        try:
            if isinstance(each.rdl, str):
                request = parse(each.rdl, calendar, bundles)
            else:
                request = from_json(each.rdl, calendar, bundles)
            if request.every is not None and not Recurrence(request).turns(0, LAST_STEP):
                end = calendar.wording.time(request.until or 0)
                raise RdlError(f"no turn begins before {end}, where the recurrence ends (until)")
            parsed.append((each, request))
        except RdlError as error:
            raise RequestsError(f"{name}: requests[{index}] ({each.name}): {error}") from None
    names = [each.name for each in file.requests]
    if twice := [each for index, each in enumerate(names) if each in names[:index]]:
        raise RequestsError(f"{name}: requests: the name {twice[0]!r} is used twice")
    until = horizon if horizon is not None else _latest([request for _, request in parsed])
    turns = [one for each, request in parsed for one in _turns(each, request, until)]
    return Requests(plan, turns, until, calendar.wording)


def _calendar(file: _File, name: str) -> Calendar:
    """Return the calendar of a file; its refusals name times and durations if the file has a step or a beginning."""
    step = _DEFAULT_STEP if file.step is None else file.step
    begins = _DEFAULT_BEGINS if file.begins is None else file.begins
    try:
        calendar = Calendar(step_s=parse_duration_s(step))
        if calendar.step_s < _SHORTEST_STEP_S:
            raise RequestsError(f"{name}: step: {step!r} is too short; {_SHORTEST_STEP_S:g} s at least")
        origin = float(calendar.exact(begins)) * calendar.step_s
    except (QuantityError, RdlError) as error:
        raise RequestsError(f"{name}: step, begins: {error}") from None
    if file.step is None and file.begins is None:
        wording = Wording()
    else:  # without a beginning, dates would be in the year 1970
        wording = Wording(calendar.step_s, None if file.begins is None else origin)
    return Calendar(step_s=calendar.step_s, origin=origin, wording=wording)


def _plan(said: str | list[_Capacity], calendar: Calendar) -> Plan:
    if isinstance(said, str):
        return Plan(parse_bundle(said))
    changes = sorted((calendar.exact(str(each.since)), index) for index, each in enumerate(said))
    plan = Plan(parse_bundle(said[changes[0][1]].bundle) if changes and changes[0][0] == 0 else Bundle())
    for since, index in changes:
        new, step = parse_bundle(said[index].bundle), math.floor(since)
        if since > step:  # within a step: the step has the least capacity throughout
            plan.set_capacity(step, Bundle.of(map(min, plan.capacity.at(step), new.amounts)), step + 1)
        plan.set_capacity(math.ceil(since), new)
    return plan


def _latest(requests: list[Request]) -> int:
    """Return the latest end of all requests; a day's worth of steps where none has an end."""
    ends = [_last_step(request) for request in requests]
    return max((end for end in ends if end is not None), default=86_400)


def _last_step(request: Request) -> int | None:
    if request.every is not None and request.until is not None:
        recurrence = Recurrence(request)
        return max((recurrence.ends(number) for number in recurrence.turns(0, request.until)[-1:]), default=None)
    finishes = [atom.finish for atom in atoms_of(normalized(request.expression)) if atom.finish is not None]
    return max(finishes, default=None)


def _turns(entry: _Entry, request: Request, horizon: int) -> list[NamedRequest]:
    """Return the request, or all its turns until the horizon; the first turn is included even if it ends later."""
    if request.every is None:
        return [NamedRequest(entry.name, entry.owner, normalized(request.expression))]
    recurrence = Recurrence(request)
    within = [number for number in recurrence.turns(0, horizon) if recurrence.ends(number) <= horizon]
    numbers = within or recurrence.turns(0, LAST_STEP)[:1]
    return [NamedRequest(f"{entry.name}+{number}", entry.owner, recurrence.turn(number)) for number in numbers]
