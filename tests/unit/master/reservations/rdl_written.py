"""Expressions written as text and as JSON, for the readers of both to give them back."""

from __future__ import annotations

from typing import Any as Anything

import msgspec

from master.reservations.rdl import All, Any, Atom, Bundle, Expression, Order, Request, Window


def show(expression: Expression) -> str:
    """The text of an expression, with steps for times, as :func:`parse` reads it."""
    match expression:
        case Atom(bundle, gang, parallelism, lease, work, start, finish):
            atom = f"atom({_show_bundle(bundle)},{gang},{parallelism},{lease},{work})"
            if start is None and finish is None:
                return atom
            return f"window({atom},{start or 0},{'∞' if finish is None else finish})"
        case Window(part, start, finish):
            return f"window({show(part)},{start},{finish})"
        case Any(parts) | All(parts):
            return f"{type(expression).__name__.lower()}({','.join(map(show, parts))})"
        case Order(parts, no_gap):
            return f"order({','.join([*map(show, parts), *(['no_gap'] if no_gap else [])])})"


def _show_bundle(bundle: Bundle) -> str:
    amounts = (
        (f"{bundle.cpu_cores:g}core", bundle.cpu_cores),
        (f"{bundle.memory_bytes}B", bundle.memory_bytes),
        (f"{bundle.disk_bytes_per_s}B/s disk", bundle.disk_bytes_per_s),
        (f"{bundle.network_bytes_per_s}B/s network", bundle.network_bytes_per_s),
    )
    return "<" + ",".join(text for text, amount in amounts if amount) + ">"


def to_json(request: Request) -> dict[str, Anything]:
    """The JSON form for :func:`from_json`; times are steps, and periods count from step 0."""
    said = _expression(request.expression)
    if request.every is not None:
        said["every"] = request.every
    if request.until is not None:
        said["until"] = request.until
    return said


def _expression(expression: Expression) -> dict[str, Anything]:
    match expression:
        case Atom(bundle, gang, parallelism, lease, work, start, finish):
            atom = {"atom": [msgspec.to_builtins(bundle), gang, parallelism, lease, work]}
            if start is None and finish is None:
                return atom
            return {"window": [atom, start or 0, finish]}
        case Window(part, start, finish):
            return {"window": [_expression(part), start, finish]}
        case Order(parts, no_gap):
            return {"order": [*map(_expression, parts)], **({"no_gap": True} if no_gap else {})}
        case Any(parts) | All(parts):
            return {type(expression).__name__.lower(): [*map(_expression, parts)]}
