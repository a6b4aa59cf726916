"""The text syntax of RDL: ``window(order(atom(<2GB,1core>,1,10,240,2400), …),0,800)`` (Rayon §3.1, Fig. 9).

A bundle is written out, or given by name. Beyond the paper: ``order(…, no_gap)``, and ``every 24h until …`` after a
whole expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any as Anything

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from master.reservations.rdl.calendar import Calendar
from master.reservations.rdl.expressions import All, Any, Atom, Bundle, Expression, Order, RdlError, Request, Window
from penstock.model.units import QuantityError, counted, parse_bytes, parse_rate

#: Longer or more deeply nested expressions are taken for mistakes.
LONGEST = 100_000
DEEPEST = 50
_GRAMMAR = r"""
request: expression every?
every: "every" span until?
until: "until" time

?expression: atom | any_of | all_of | order | window

atom: "atom" "(" bundle "," INT "," INT "," span "," span ")"
any_of: "any" "(" expression ("," expression)* ")"
all_of: "all" "(" expression ("," expression)* ")"
order: "order" "(" expression ("," expression)* ("," NO_GAP)? ")"
window: "window" "(" expression "," time "," time ")"

bundle: NAME | "<" amount ("," amount)* ">"
amount: QUANTITY RESOURCE?
span: INT | SPAN
time: INT | SPAN | AHEAD | DATE

NO_GAP: "no_gap"
INT.3: /[0-9]{1,18}(?![0-9A-Za-z.\-])/
SPAN.2: /[0-9]{1,18}(\.[0-9]{1,9})?(s|min|h|d)(?![A-Za-z])/
AHEAD: /\+[0-9]{1,18}(\.[0-9]{1,9})?(s|min|h|d)?/
DATE.4: /[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,15}(Z|[+-][0-9]{2}:?[0-9]{2})?/
QUANTITY.1: /[0-9]{1,18}(\.[0-9]{1,9})?\s?(cores?|[KMGT]?i?(B|bit)?(\/s)?)(?![A-Za-z])/
RESOURCE: /RAM|memory|disk|network|cores?/
NAME: /[A-Za-z_][A-Za-z0-9_.\-]*/

%import common.WS
%ignore WS
"""
_Tree = Tree[Token]
_KINDS = {
    "RAM": "memory_bytes",
    "memory": "memory_bytes",
    "disk": "disk_bytes_per_s",
    "network": "network_bytes_per_s",
    "core": "cpu_cores",
    "cores": "cpu_cores",
}
_EXPECTED = {
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "LESSTHAN": "'<'",
    "MORETHAN": "'>'",
    "INT": "a whole number",
    "SPAN": "a duration such as 5min",
    "AHEAD": "a time from now such as +2h",
    "DATE": "a time such as 2026-11-21T10:00:00Z",
    "QUANTITY": "a quantity such as 2GB",
    "RESOURCE": "RAM, disk or network",
    "NAME": "a bundle's name",
    "NO_GAP": "no_gap",
    "$END": "the end",
}


def parse(text: str, calendar: Calendar | None = None, bundles: Mapping[str, Bundle] | None = None) -> Request:
    """Return the request of a text. ``bundles`` are the named bundles.

    Raises: RdlError: the text is invalid; the message points at the character.
    """
    if len(text) > LONGEST:
        raise RdlError(f"an expression of {counted(len(text), 'character')}; at most {LONGEST}")
    _look_at_depth(text)
    try:
        tree = _parser("request").parse(text)
    except UnexpectedInput as error:
        raise _unexpected(text, error) from None
    return _Reader(text, calendar or Calendar(), bundles or {}).request(tree)


def parse_bundle(text: str) -> Bundle:
    """Return the bundle of a text such as ``<2GB,1core>``.

    Raises: RdlError: the text is invalid; the message points at the character.
    """
    try:
        tree = _parser("bundle").parse(text)
    except UnexpectedInput as error:
        raise _unexpected(text, error) from None
    return _Reader(text, Calendar(), {}).bundle(tree)


@cache
def _parser(start: str) -> Lark:
    return Lark(_GRAMMAR, start=start, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def _at(text: str, position: int, what: str) -> RdlError:
    before, after = text[max(0, position - 24) : position], text[position : position + 12]
    shown = f"{before}▸{after}".replace("\n", " ")
    return RdlError(f"rdl: character {position + 1}: {what}; at ▸ in: {shown}")


def _look_at_depth(text: str) -> None:
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth > DEEPEST:
            raise _at(text, position, f"nested deeper than {DEEPEST}")


def _unexpected(text: str, error: UnexpectedInput) -> RdlError:
    match error:
        case UnexpectedCharacters():
            names, position = error.allowed or set(), error.pos_in_stream
        case UnexpectedToken():
            names, position = error.accepts or error.expected, error.pos_in_stream
            if error.token.type == "$END":
                position = len(text)
        case UnexpectedEOF():
            names, position = set(error.expected), len(text)
        case _:
            names, position = set(), 0
    words = sorted({_EXPECTED.get(name, name.lower()) for name in names if name != "WS"})
    wanted = " or ".join(words) if words else "something else"
    return _at(text, position if position is not None and position >= 0 else len(text), f"expected {wanted}")


class _Reader:
    """Converts Lark's tree to expressions."""

    def __init__(self, text: str, calendar: Calendar, bundles: Mapping[str, Bundle]) -> None:
        self._text = text
        self._calendar = calendar
        self._bundles = bundles

    def request(self, tree: _Tree) -> Request:
        asked = _tree(tree.children[0])
        expression = self._expression(asked)
        if len(tree.children) == 1:
            return Request(expression=expression)
        every = _tree(tree.children[1])
        period = self._steps(_tree(every.children[0]).children[0], self._calendar.period)
        if not period:
            raise self._wrong(every, "a period takes one step at least")
        relative = any(token.type == "AHEAD" for token in asked.scan_values(lambda each: isinstance(each, Token)))
        base = self._calendar.now if relative else 0
        if len(every.children) == 1:
            return Request(expression=expression, every=period, base=base)
        until = self._time(_tree(_tree(every.children[1]).children[0]), last=True)
        return Request(expression=expression, every=period, until=until, base=base)

    def _expression(self, tree: _Tree) -> Expression:
        match tree.data:
            case "atom":
                return self._atom(tree)
            case "any_of":
                return Any(self._parts(tree))
            case "all_of":
                return All(self._parts(tree))
            case "order":
                return Order(self._parts(tree), any(isinstance(child, Token) for child in tree.children))
        part, first, last = map(_tree, tree.children)
        start, finish = self._time(first), self._time(last, last=True)
        if why := self._calendar.no_window(start, finish):
            raise self._wrong(last, why)
        return Window(self._expression(part), start, finish)

    def _parts(self, tree: _Tree) -> tuple[Expression, ...]:
        return tuple(self._expression(child) for child in tree.children if isinstance(child, Tree))

    def _atom(self, tree: _Tree) -> Atom:
        bundle, gang, parallelism, lease, work = tree.children
        low, high = int(str(gang)), int(str(parallelism))
        if low < 1:
            raise self._wrong(gang, "a gang has one bundle at least; write 1 where the job takes any number")
        if high < low:
            raise self._wrong(parallelism, f"at most {high} is less than the gang of {low}")
        span = partial(self._steps, read=self._calendar.span)
        return Atom(
            bundle=self.bundle(_tree(bundle)),
            gang=low,
            parallelism=high,
            lease=max(1, span(_tree(lease).children[0])),
            work=span(_tree(work).children[0]),
        )

    def bundle(self, tree: _Tree) -> Bundle:
        first = tree.children[0]
        if isinstance(first, Token):
            found = self._bundles.get(str(first))
            if found is None:
                known = ", ".join(sorted(self._bundles)) or "none is"
                raise self._wrong(first, f"no bundle is named {str(first)!r} (known: {known})")
            return found
        amounts: dict[str, Anything] = {}
        for child in tree.children:
            name, amount = self._amount(_tree(child))
            if name in amounts:
                raise self._wrong(child, f"{name} is given twice in one bundle")
            amounts[name] = amount
        return Bundle(**amounts)

    def _amount(self, tree: _Tree) -> tuple[str, float | int]:
        quantity = str(tree.children[0]).replace(" ", "")
        number = quantity.removesuffix("s").removesuffix("core") if "core" in quantity else None
        kind = _KINDS[str(tree.children[1])] if len(tree.children) > 1 else "cpu_cores" if number else "memory_bytes"
        try:
            if kind == "cpu_cores":
                amount: float = float(number if number is not None else quantity)
            elif number is not None:
                raise QuantityError("cores are neither memory nor a rate")
            else:
                amount = parse_bytes(quantity) if kind == "memory_bytes" else parse_rate(quantity)
        except ValueError as error:
            raise self._wrong(tree, str(error)) from None
        if amount <= 0:
            raise self._wrong(tree, "a bundle has some of each resource that it names")
        return kind, amount

    def _time(self, tree: _Tree, *, last: bool = False) -> int:
        return self._steps(tree.children[0], partial(self._calendar.time, last=last))

    def _steps(self, token: Token | _Tree, read: Callable[[str], int]) -> int:
        try:
            return read(str(token))
        except RdlError as error:
            raise self._wrong(token, str(error)) from None

    def _wrong(self, where: Token | _Tree, what: str) -> RdlError:
        position = where.start_pos if isinstance(where, Token) else where.meta.start_pos
        return _at(self._text, position or 0, what)


def _tree(child: Token | _Tree) -> _Tree:
    assert isinstance(child, Tree)
    return child
