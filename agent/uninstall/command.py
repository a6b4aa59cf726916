"""The command ``penstock uninstall``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from agent.config import AgentConfig
from agent.uninstall.plan import Host, Refused, removals
from penstock.cli.arguments import Parser, key_value
from penstock.cli.errors import note
from penstock.cli.plain_text import printable
from penstock.config import settings


def main(argv: list[str] | None = None) -> int:
    """Run the command. Exit status 0: nothing is left; 1: something is, or containers run; 2: bad input."""
    arguments = _parser().parse_args(argv)
    try:
        config = settings.load(AgentConfig, arguments.config, dict(arguments.set))
    except settings.SettingsError as error:
        for fault in error.faults:
            note("uninstall", fault)
        return 2
    try:
        left = _carry_out(config, arguments)
    except (Refused, OSError) as error:
        note("uninstall", str(error))
        return 1
    return 1 if left else 0


def _carry_out(config: AgentConfig, arguments: argparse.Namespace) -> int:
    """Remove everything possible; return how many things could not be removed."""
    rows: list[dict[str, object]] = []
    kills = False

    def say(line: str) -> None:
        if not arguments.json:
            print(printable(line), flush=True)

    kill = arguments.kill or arguments.dry_run  # a list has the containers, too
    for removal in removals(config, kill=kill, purge=arguments.purge, host=Host()):
        row: dict[str, object] = {"what": removal.what, "removed": not arguments.dry_run, "why": ""}
        rows.append(row)
        kills = kills or removal.kills
        if arguments.dry_run:
            say(f"would remove {removal.what}")
            continue
        try:
            removal.remove()
        except OSError as error:
            row |= {"removed": False, "why": error.strerror or str(error)}
            note("uninstall", f"{removal.what}: {row['why']}")
        else:
            say(f"removed {removal.what}")
    if kills and not arguments.kill:
        note("uninstall", "containers, or other agents' launchers, run: without --kill nothing would be removed")
    if arguments.json:
        print(json.dumps(rows))
    elif not rows:
        print("nothing of Penstock is set up here")
    return sum(1 for row in rows if row["why"])


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "uninstall",
        "Remove from this host everything that agents have set up and that would outlive them: launcher, cgroups, BPF\n"
        "programs, traffic control, sockets. Safe to repeat. Packages and units stay.",
    )
    parser.add_argument(
        "--kill", action="store_true", help="kill running containers, also of other agents, instead of refusing"
    )
    parser.add_argument("--purge", action="store_true", help="also the state directory: journal and outputs")
    parser.add_argument("--dry-run", action="store_true", help="print the removals without doing them")
    parser.add_argument("--json", action="store_true", help="print the things removed, or to be removed, as JSON")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the agent's, e.g. /etc/penstock/agent.toml")
    parser.add_argument(
        "--set", type=key_value, action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable"
    )
    return parser
