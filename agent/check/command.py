"""``penstock check``."""

from __future__ import annotations

import argparse
import difflib
import json
import sys

from agent.check.facts import Fact, enforcement, probe_tree


def main(argv: list[str] | None = None) -> int:
    """0: everything asked for can be enforced; 1: something cannot; 2: bad input."""
    parser = argparse.ArgumentParser(
        prog="penstock check",
        description="What this host can enforce: one line each, with the reason and the remedy.",
        epilog="exit status: 0 if all that is asked for can be enforced, 1 if something cannot, 2 on bad input",
    )
    parser.add_argument("--need", metavar="WHAT,…", help="what must be enforceable (default: everything)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    with probe_tree() as tree:
        facts = enforcement(tree)
    needed = list(facts)
    if arguments.need is not None:
        needed = [name.strip() for name in arguments.need.split(",")]
        if (complaint := _complaint(needed, facts)) is not None:
            print(f"penstock check: --need: {complaint}", file=sys.stderr)
            return 2
    if arguments.json:
        print(json.dumps({n: {"ok": facts[n].ok, "why": facts[n].why, "remedy": facts[n].remedy} for n in needed}))
    else:
        width = max(len(name) for name in needed)
        for name in needed:
            fact = facts[name]
            remedy = f"; remedy: {fact.remedy}" if fact.remedy else ""
            print(f"{name:<{width}}  {'yes' if fact.ok else 'no ':<3}  {fact.why}{remedy}")
    return 0 if all(facts[name].ok for name in needed) else 1


def _complaint(needed: list[str], facts: dict[str, Fact]) -> str | None:
    """What is wrong with the list; None: nothing."""
    for name in needed:
        if name not in facts:
            near = difflib.get_close_matches(name, facts, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(facts)}"
            return f"unknown {name!r}; {hint}"
    return None
