"""The JSON form of RDL, one key for each operator: ``{"window": [{"atom": ["b", 1, 10, 240, 2400]}, 0, 800]}``.

Times and durations are numbers of steps, or text as in the text syntax; a bundle is its name or an object with the
fields of :class:`Bundle`; ``"no_gap": true`` is a key next to ``"order"``, ``"every"`` and ``"until"`` are keys next to
the outermost operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from master.reservations.rdl.calendar import LAST_STEP, Calendar
from master.reservations.rdl.expressions import All, Any, Atom, Bundle, Expression, Order, RdlError, Request, Window
from master.reservations.rdl.text import DEEPEST
from penstock.model.decode_errors import told

_BESIDE = {"order": {"no_gap"}}


def from_json(value: object, calendar: Calendar | None = None, bundles: Mapping[str, Bundle] | None = None) -> Request:
    """Return the request of decoded JSON.

    Raises: RdlError: it is invalid; the message names the place (``$.window[0].atom[1]``).
    """
    reader = _Reader(calendar or Calendar(), bundles or {})
    if not isinstance(value, dict):
        raise RdlError("rdl: $: an object with one of atom, any, all, order, window")
    inner = {key: each for key, each in value.items() if key not in ("every", "until")}
    expression = reader.expression(inner, "$", 0)
    every = reader.period(value["every"], "$.every") if "every" in value else None
    if every == 0 or ("until" in value and every is None):
        raise RdlError("rdl: $.every: a period of one step at least")
    until = reader.time(value["until"], "$.until", last=True) if "until" in value else None
    base = reader.now if every is not None and reader.relative else 0
    return Request(expression=expression, every=every, until=until, base=base)


class _Reader:
    def __init__(self, calendar: Calendar, bundles: Mapping[str, Bundle]) -> None:
        self._calendar = calendar
        self._bundles = bundles
        self.now = calendar.now
        #: Whether a window of the expression is relative to ``now``.
        self.relative = False

    def expression(self, value: object, at: str, depth: int) -> Expression:
        if depth > DEEPEST:
            raise RdlError(f"rdl: nested deeper than {DEEPEST}")
        names = [
            name for name in ("atom", "any", "all", "order", "window") if isinstance(value, dict) and name in value
        ]
        if not isinstance(value, dict) or len(names) != 1:
            raise RdlError(f"rdl: {at}: an object with one of atom, any, all, order, window")
        (name,) = names
        unknown = set(value) - {name} - _BESIDE.get(name, set())
        if unknown:
            raise RdlError(f"rdl: {at}: {name} and {min(map(str, unknown))!r} do not go together")
        inside = value[name]
        if not isinstance(inside, list) or not inside:
            raise RdlError(f"rdl: {at}.{name}: a list that is not empty")
        if name == "atom":
            return self._atom(inside, f"{at}.atom")
        if name == "window":
            return self._window(inside, f"{at}.window", depth)
        parts = tuple(self.expression(part, f"{at}.{name}[{index}]", depth + 1) for index, part in enumerate(inside))
        if name == "order":
            no_gap = value.get("no_gap", False)
            if not isinstance(no_gap, bool):
                raise RdlError(f"rdl: {at}.no_gap: true or false")
            return Order(parts, no_gap)
        return Any(parts) if name == "any" else All(parts)

    def span(self, value: object, at: str) -> int:
        return self._steps(value, at, self._calendar.span)

    def period(self, value: object, at: str) -> int:
        return self._steps(value, at, self._calendar.period)

    def time(self, value: object, at: str, *, last: bool = False) -> int:
        return self._steps(value, at, partial(self._calendar.time, last=last))

    def _steps(self, value: object, at: str, read: Callable[[str], int]) -> int:
        try:
            return read(value if isinstance(value, str) else repr(value)[:80])
        except RdlError as error:
            raise RdlError(f"rdl: {at}: {error}") from None

    def _window(self, inside: list[object], at: str, depth: int) -> Window:
        if len(inside) != 3:
            raise RdlError(f"rdl: {at}: [expression, start, finish]")
        self.relative |= any(isinstance(each, str) and each.startswith("+") for each in inside[1:])
        start, finish = self.time(inside[1], f"{at}[1]"), self.time(inside[2], f"{at}[2]", last=True)
        if why := self._calendar.no_window(start, finish):
            raise RdlError(f"rdl: {at}[2]: {why}")
        return Window(self.expression(inside[0], f"{at}[0]", depth + 1), start, finish)

    def _atom(self, inside: list[object], at: str) -> Atom:
        if len(inside) != 5:
            raise RdlError(f"rdl: {at}: [bundle, g, h, l, w]")
        gang, parallelism = (self._count(inside[index], f"{at}[{index}]") for index in (1, 2))
        if parallelism < gang:
            raise RdlError(f"rdl: {at}[2]: at most {parallelism} is less than the gang of {gang}")
        lease, work = max(1, self.span(inside[3], f"{at}[3]")), self.span(inside[4], f"{at}[4]")
        return Atom(self._bundle(inside[0], f"{at}[0]"), gang, parallelism, lease, work)

    def _count(self, value: object, at: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LAST_STEP:
            raise RdlError(f"rdl: {at}: a whole number from 1 to {LAST_STEP}")
        return value

    def _bundle(self, value: object, at: str) -> Bundle:
        if isinstance(value, str):
            if value not in self._bundles:
                known = ", ".join(sorted(self._bundles)) or "none is"
                raise RdlError(f"rdl: {at}: no bundle is named {value!r} (known: {known})")
            return self._bundles[value]
        try:
            bundle = msgspec.convert(value, Bundle)
        except msgspec.ValidationError as error:
            raise RdlError(f"rdl: {told(error, Bundle, key=at)}") from None
        if not any(bundle.amounts):
            raise RdlError(f"rdl: {at}: a bundle has some of each resource that it names")
        return bundle
