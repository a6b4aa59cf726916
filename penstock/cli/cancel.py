"""``penstock cancel``: stop jobs with all their running tasks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.errors import note
from penstock.cli.exit_statuses import Status
from penstock.cli.jobs import ended
from penstock.cli.json_output import print_json
from penstock.cli.session import asked
from penstock.wire.errors import ErrorCode, RpcError

if TYPE_CHECKING:
    from penstock.client.blocking_requests import BlockingRequests

#: The longest wait for stopped work (seconds); work that ignores its termination is killed long before.
_PATIENCE_S = 60.0


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = arguments.Parser(
        "cancel", "Stop jobs of yours (operators: of any user); returns when all their tasks have stopped."
    )
    parser.add_argument(
        "jobs", nargs="+", type=arguments.listed_id, metavar="JOB", help="ids, as `penstock jobs` shows them"
    )
    parser.add_argument("--no-wait", action="store_true", help="return as soon as no new task of them can start")
    parser.add_argument("--json", action="store_true", help="print the result for each job as JSON")
    options = parser.parse_args(argv)
    jobs = list(dict.fromkeys(options.jobs))
    results, status = asked("cancel", lambda agent: _cancel(agent, jobs, wait=not options.no_wait))
    if options.json:
        print_json([{"job": job, **result} for job, result in results.items()])
    return status


async def _cancel(
    agent: BlockingRequests, jobs: Sequence[str], *, wait: bool
) -> tuple[dict[str, dict[str, str]], Status]:
    """Return the result for each job, and the exit status."""
    results: dict[str, dict[str, str]] = {}
    waited: list[str] = []
    status = Status.DONE
    for job in jobs:
        try:
            answer = await agent.jobs.cancel(job)
        except RpcError as error:
            if error.code not in {ErrorCode.BAD_REQUEST, ErrorCode.REFUSED} or error.body.field != "job":
                raise
            unknown = error.code is ErrorCode.BAD_REQUEST
            results[job] = {"state": "unknown" if unknown else "refused", "why": error.body.message}
            status = Status.UNKNOWN if unknown else status or Status.FAILED
            note("cancel", f"{error.body.message}{' (see `penstock jobs`)' if unknown else ''}")
            continue
        results[job] = {"state": "cancelled", "why": ""}
        if answer.away:
            results[job] = {"state": "away", "why": f"its host {answer.away} is away"}
            note("cancel", f"{job}: its host {answer.away} is away, and stops the job's own work there when it is back")
        else:
            waited.append(job)
    if wait and waited:
        _, over = await ended(agent, waited, _PATIENCE_S, partial(note, "cancel"))
        status = status or (over if over is Status.TIME_OVER else Status.DONE)
    return results, status
