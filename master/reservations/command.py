"""``penstock plan REQUESTS.json``: plan reservations off line, and show which the cluster would accept."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from master.reservations.gree import Gree, Placed
from master.reservations.gree_l import GreeL
from master.reservations.measures import Measures, measure
from master.reservations.milp import solve
from master.reservations.rdl import Bundle, infeasible
from master.reservations.requests_file import Requests, RequestsError, read
from penstock import extras
from penstock.cli.arguments import Parser
from penstock.cli.errors import note
from penstock.cli.json_output import print_json
from penstock.cli.plain_text import printable

_EXAMPLE = """\
a file:  {"capacity": "<400core,800GB>", "bundles": {"b": "<2GB,1core>"}, "step": "1s",
          "requests": [{"name": "nightly", "rdl": "window(atom(b,1,10,240,2400),0,800)"}]}
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit status: 0, or 2 for an invalid file or command line."""
    parser = Parser(
        "plan", "Plan a set of reservation requests against a cluster, off line (docs/reservations.md).", _EXAMPLE
    )
    parser.add_argument("requests", metavar="REQUESTS.json", help="the cluster and the requests; - is stdin")
    planners = "gree (default): as late as possible; gree_l: as flat as possible; milp: all requests at once"
    parser.add_argument("--planner", choices=["gree", "gree_l", "milp"], default="gree", help=planners)
    parser.add_argument("--early", action="store_true", help="as early as possible instead of as late (not milp)")
    parser.add_argument("--strict", action="store_true", help="gree_l: reject parts that do not fit their intervals")
    parser.add_argument(
        "--quantum", type=int, default=1, metavar="STEPS", help="milp: steps merged into one (default: 1)"
    )
    limit = "milp: the longest time in seconds; then the best plan found is used (default: 60)"
    parser.add_argument("--time-limit-s", type=float, default=60.0, metavar="N", help=limit)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the promises over time")
    options = parser.parse_args(argv)
    try:
        requests = read(_bytes(options.requests), options.requests)
        if options.quantum < 1 or options.time_limit_s <= 0:
            raise RequestsError("--quantum is 1 or more, --time-limit-s above 0")
        began = time.perf_counter()
        placed = _planned(requests, options)
        took_s = time.perf_counter() - began
    except RequestsError as error:
        note("plan", str(error))
        return 2
    expressions = {each.name: each.expression for each in requests.requests}
    measures = measure(expressions, placed, requests.plan, requests.horizon)
    if options.json:
        print_json(_document(requests, placed, measures, took_s), indent=1)
    else:
        print(_text(requests, placed, measures, took_s))  # noqa: T201
    if options.plot is not None:
        return _drawn(requests, placed, options.plot)
    return 0


def _bytes(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise RequestsError(f"{name}: {error.strerror}") from None


def _planned(requests: Requests, options: argparse.Namespace) -> dict[str, Placed | None]:
    """Return each request's placement, and add it to the plan."""
    if options.planner == "milp":
        return _solved(requests, options)
    if options.planner == "gree":
        planner = Gree(requests.plan, early=options.early)
    else:
        planner = GreeL(requests.plan, early=options.early, fallback=not options.strict)
    return {each.name: planner.promise(each.name, each.expression, 0, requests.horizon) for each in requests.requests}


def _solved(requests: Requests, options: argparse.Namespace) -> dict[str, Placed | None]:
    solved = solve(
        requests.plan,
        {each.name: each.expression for each in requests.requests},
        requests.horizon,
        quantum=options.quantum,
        time_limit_s=options.time_limit_s,
    )
    for name, placed in solved.placed.items():
        if placed is not None:
            requests.plan.add(name, chain.from_iterable(placed))
    return dict(solved.placed)


def _rows(requests: Requests, placed: Mapping[str, Placed | None]) -> list[dict[str, Any]]:
    most = Bundle.of(map(max, requests.plan.capacity.columns))
    rows = []
    for each in requests.requests:
        given = placed[each.name]
        row: dict[str, Any] = {"name": each.name, "owner": each.owner, "accepted": given is not None}
        if given is None:
            why = infeasible(each.expression, 0, most, requests.wording)
            row["reason"] = why or "no room next to the existing promises"
        else:
            pieces = sorted(piece[:3] for piece in chain.from_iterable(given))
            row["promised"] = [{"start": start, "finish": finish, "bundles": n} for start, finish, n in pieces]
        rows.append(row)
    return rows


def _document(
    requests: Requests, placed: Mapping[str, Placed | None], measures: Measures, took_s: float
) -> dict[str, Any]:
    return {"requests": _rows(requests, placed), "measures": msgspec.to_builtins(measures) | {"runtime_s": took_s}}


def _text(requests: Requests, placed: Mapping[str, Placed | None], measures: Measures, took_s: float) -> str:
    lines = []
    for row in _rows(requests, placed):
        if row["accepted"]:
            shown = [f"[{one['start']}, {one['finish']}) × {one['bundles']}" for one in row["promised"]]
            lines.append(f"accepted  {row['name']}: {', '.join(shown) or 'nothing'}")
        else:
            lines.append(f"REJECTED  {row['name']}: {row['reason']}")
    lines.append(
        f"{measures.accepted} of {measures.requests} accepted ({measures.acceptance:.1%} of the work) in "
        f"{took_s * 1e3:.0f} ms; preemption {measures.preemption:.3f}, uniformity {measures.uniformity:.3f}"
    )
    return "\n".join(map(printable, lines))


def _drawn(requests: Requests, placed: Mapping[str, Placed | None], path: Path) -> int:
    try:
        from master.reservations.picture import draw

        draw(
            requests.plan, {name: given for name, given in placed.items() if given is not None}, requests.horizon, path
        )
    except ModuleNotFoundError:
        remedy = f"install it with `{extras.install('simulate')}`"
        note("plan", f"--plot needs matplotlib; {remedy}")
        return 2
    except (OSError, ValueError) as error:
        note("plan", f"--plot: {path}: {getattr(error, 'strerror', None) or error}")
        return 2
    return 0
