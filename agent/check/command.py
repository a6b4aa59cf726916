"""``penstock check``."""

from __future__ import annotations

import json
from pathlib import Path

from agent.check.facts import Fact, enforcement, libraries, paths, probe_tree
from penstock.cli.arguments import Parser
from penstock.cli.errors import note
from penstock.cli.plain_text import printable
from penstock.model.near_names import did_you_mean
from penstock.paths import state_dir


def main(argv: list[str] | None = None) -> int:
    """Run the command. Exit status 0: everything asked for can be enforced; 1: something cannot; 2: bad input."""
    parser = Parser(
        "check", "Show the limits that this host can enforce: one line each, with the reason and the remedy."
    )
    parser.add_argument("--need", metavar="WHAT,…", help="names that must be enforceable (default: all)")
    parser.add_argument(
        "--path", metavar="P", type=Path, action="append", default=[],
        help="show the disk on which P lies, and whether a container's limits apply there; repeatable",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    with probe_tree() as tree:
        facts = enforcement(tree)
    needed, optional = list(facts), libraries()
    if arguments.need is not None:
        needed = [name.strip() for name in arguments.need.split(",")]
        if (complaint := _complaint(needed, facts | optional)) is not None:
            note("check", f"--need: {complaint}")
            return 2
    # The directories where the agent and most work write, and libraries that a feature needs, are worth a line but no
    # reason to fail: --need and --path name the dependencies of a host.
    usual = optional | paths(_usual(), facts) if arguments.need is None else {}
    asked = paths(arguments.path, facts)
    known = facts | optional
    shown = {name: known[name] for name in needed} | usual | asked
    if arguments.json:
        print(json.dumps({name: {"ok": f.ok, "why": f.why, "remedy": f.remedy} for name, f in shown.items()}))
    else:
        width = max(len(name) for name in shown)
        for name, fact in shown.items():
            remedy = f"; remedy: {fact.remedy}" if fact.remedy else ""
            print(printable(f"{name:<{width}}  {'yes' if fact.ok else 'no ':<3}  {fact.why}{remedy}"))
    return 0 if all(shown[name].ok for name in (*needed, *asked)) else 1


def _usual() -> list[Path]:
    """Return the directories where the agent keeps its files, and where most work writes."""
    state = state_dir()
    while not state.exists():
        state = state.parent
    return list(dict.fromkeys((Path("/"), state, Path("/tmp"), Path("/home"))))  # noqa: S108


def _complaint(needed: list[str], facts: dict[str, Fact]) -> str | None:
    """Return the error in the list; None: there is none."""
    for name in needed:
        if name not in facts:
            hint = did_you_mean(name, facts, f"one of {', '.join(facts)}")
            return f"unknown {name!r}; {hint}"
    return None
