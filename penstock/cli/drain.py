"""``penstock drain``: stop placing work on nodes; running work ends, or runs again elsewhere (docs/drain.md)."""

from __future__ import annotations

import argparse
import math
import time
from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.errors import CommandError, usage_error
from penstock.cli.exit_statuses import Status
from penstock.cli.json_output import print_json
from penstock.cli.plain_text import printable
from penstock.cli.session import asked
from penstock.wire.errors import ErrorCode, RpcError

if TYPE_CHECKING:
    from penstock.client.blocking_requests import BlockingRequests
    from penstock.wire.cluster_api import Drains, NodeDrain, Remaining

_LOOK_S = 0.25
#: The longest wait for stopped work; the agents kill it at once.
_STOPPED_S = 30.0
_NAMED = 5
#: Kinds of work that the master placed; the rest belongs to the node's own users.
_PLACED = ("command", "executor", "task")
_EPILOG = """A drained node stays drained until `penstock undrain`, across all restarts. Commands run to their
end; opportunistic ones move elsewhere at once. Work that users of the node run there themselves
(`penstock run`, gates of frameworks) continues, and the command waits for it, too."""


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = arguments.Parser("drain", "Stop placing work on nodes, and wait until nothing runs there.", _EPILOG)
    parser.add_argument("nodes", metavar="NODE", nargs="*", help="the master's name of a node; default: this host")
    parser.add_argument(
        "--timeout", metavar="DURATION", type=arguments.duration, help="the longest wait (default: until all is done)"
    )
    parser.add_argument(
        "--stop", action="store_true", help="then stop the work placed by the cluster, to run again elsewhere"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not wait; with --stop: stop at once")
    parser.add_argument("--json", action="store_true", help="print the state of each node as JSON")
    options = parser.parse_args(argv)
    if options.no_wait and options.timeout is not None:
        raise usage_error("--no-wait does not wait; leave out --timeout")
    if options.stop and options.timeout is None and not options.no_wait:
        raise usage_error("--stop: add --timeout DURATION, or --no-wait to stop at once")
    found = asked("drain", partial(_drain, options), named="nodes")
    show(found, as_json=options.json)
    left = [node for node in found.nodes if node.state != "drained"]
    if left and not options.no_wait:
        raise CommandError("; ".join(map(_still, left)), status=Status.TIME_OVER)
    return Status.DONE


async def _drain(options: argparse.Namespace, agent: BlockingRequests) -> Drains:
    found = await agent.nodes.drain(options.nodes, stop=options.stop and options.no_wait)
    if options.no_wait:
        return found
    names = [node.node for node in found.nodes]
    found = await _wait(agent, names, math.inf if options.timeout is None else options.timeout, stop=False)
    if options.stop and not _done(found):
        found = await _wait(agent, names, _STOPPED_S, stop=True)
    return found


async def _wait(agent: BlockingRequests, names: list[str], for_s: float, *, stop: bool) -> Drains:
    """Wait until all nodes are drained, or for ``for_s`` seconds, also while the master is away."""
    until = time.monotonic() + for_s
    while True:
        try:
            found = await (agent.nodes.drain(names, stop=True) if stop else agent.nodes.drains(names))
        except RpcError as error:
            if error.code is not ErrorCode.UNAVAILABLE or time.monotonic() >= until:
                raise
        else:
            undrained = [node.node for node in found.nodes if node.draining is None]
            if undrained:
                raise CommandError(f"{', '.join(undrained)}: undrained by a user meanwhile")
            # With `stop`: until no work is left that can be stopped. Before a node's first report that is unknown.
            stoppable = any(
                not node.count or any(each.kind in _PLACED for each in node.remaining) for node in found.nodes
            )
            if _done(found) or time.monotonic() >= until or (stop and not stoppable):
                return found
        await agent.pause(max(0.0, min(_LOOK_S, until - time.monotonic())))


def _done(found: Drains) -> bool:
    return all(node.state == "drained" for node in found.nodes)


def show(found: Drains, *, as_json: bool) -> None:
    """Print JSON, or a line for each node."""
    if as_json:
        print_json(found)
        return
    for node in found.nodes:
        state = "accepts work" if node.state == "connected" else node.state
        print(printable(f"{node.node}: {state}"))
        if node.draining is not None and node.jobs:
            jobs = ", ".join(node.jobs[:_NAMED]) + (", …" if len(node.jobs) > _NAMED else "")
            print(printable(f"  jobs of its users go on, and would end if the host went for good: {jobs}"))


def _still(node: NodeDrain) -> str:
    """Describe the remaining work on a node."""
    if node.state == "away":
        return f"{node.node} is away, so its running work is unknown"
    if not node.count:
        return f"{node.node} has not reported its running work yet"
    named = [_named(each) for each in node.remaining[:_NAMED]]
    more = [f"{node.count - len(named)} more"] if node.count > len(named) else []
    return f"{node.node} still runs {', '.join([*named, *more])}"


def _named(left: Remaining) -> str:
    named = f" ({left.name})" if left.name else ""
    return printable(f"{left.kind} {left.id} of {left.user or 'an unknown user'}{named}")
