"""``penstock resize``: change the limits of a running container."""

from __future__ import annotations

from penstock.cli import arguments
from penstock.cli.errors import usage_error
from penstock.cli.json_output import print_json
from penstock.cli.limits import add_limits, changes, strict_by_option, warn
from penstock.cli.session import asked
from penstock.wire.agent_api import Resize
from penstock.wire.agent_methods import RESIZE


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = arguments.Parser(
        "resize",
        "Change limits of a running container; limits that are not named stay. Returns when the kernel has them.",
        "Memory shrinks only as far as no process is killed by it.",
    )
    parser.add_argument("container", metavar="CONTAINER", help="its id, as `penstock status` shows it")
    parser.add_argument("--json", action="store_true", help="print all limits, and the unenforced ones, as JSON")
    add_limits(parser, removable=True)
    options = parser.parse_args(argv)
    limits = changes(options)
    if not limits:
        raise usage_error("no limit given; write for example `penstock resize CONTAINER --cpu 2 --memory none`")

    wanted = Resize(container=options.container, limits=limits, strict=options.strict)
    with strict_by_option():
        now = asked("resize", lambda agent: agent.ask(RESIZE, wanted), named="container")
    if options.json:
        print_json({"container": options.container, "limits": now.limits, "not_enforced": now.not_enforced})
    else:
        warn("resize", now.not_enforced)
    return 0
