"""``penstock adopt``: move a running process into a container on this host."""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock.cli import arguments
from penstock.cli.errors import CommandError
from penstock.cli.exit_statuses import Status
from penstock.cli.limits import add_class, add_limits, print_container, specification, strict_by_option
from penstock.cli.session import asked
from penstock.client.errors import LOST_WHILE_ADOPTING
from penstock.wire.agent_api import Adopt
from penstock.wire.agent_methods import ADOPT


def main(argv: list[str]) -> int:
    """Run the command."""
    options = _parse(argv)
    spec = specification(options, _command_of(options.pid), detach=True)
    wanted = Adopt(pid=options.pid, container=spec, tree=options.tree)
    with strict_by_option():
        adopted = asked("adopt", lambda agent: agent.ask_once(ADOPT, wanted, LOST_WHILE_ADOPTING))
    print_container("adopt", adopted.container, adopted.not_enforced, as_json=options.json)
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.Parser(
        "adopt",
        "Move a running process of yours into a container on this host; print the container's id.",
        "Memory that the process uses already stays charged to its old cgroup, and its child processes stay outside\n"
        "(unless --tree is given). Prefer `penstock run` for commands that you start yourself.",
    )
    parser.add_argument("pid", type=arguments.count, metavar="PID", help="the process")
    parser.add_argument("--tree", action="store_true", help="include its descendants")
    parser.add_argument("--json", action="store_true", help="print the id and the unenforced limits as JSON")
    add_limits(parser)
    add_class(parser)
    return parser.parse_args(argv)


def _command_of(pid: int) -> tuple[str, ...]:
    """Return a process's command line, for display. Bytes that are not UTF-8 are replaced, as the process runs already.

    Raises:
        CommandError: there is no such process.
    """
    directory = Path(f"/proc/{pid}")
    try:
        command = (directory / "cmdline").read_bytes().removesuffix(b"\0") or (directory / "comm").read_bytes().strip()
    except OSError:
        why = f"there is no process {pid} on this host; `ps x` lists yours"
        raise CommandError(why, status=Status.UNKNOWN) from None
    return tuple(each.decode("utf-8", "replace") for each in command.split(b"\0"))
