"""``penstock jobs``: list jobs known to the master, including recently ended ones; wait for their end; order them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import arguments, lean_imports
from penstock.cli.errors import note, usage_error
from penstock.cli.exit_statuses import Status
from penstock.cli.json_output import print_json
from penstock.cli.session import asked
from penstock.wire.errors import ErrorCode, RpcError

if TYPE_CHECKING:
    from penstock.client.blocking_requests import BlockingRequests
    from penstock.wire.jobs_api import Jobs, JobsOrdered, JobView

#: The first and longest pause between two queries while waiting for jobs (seconds).
_LOOK_S = (0.1, 2.0)
#: The pause before a master that is away is queried again (seconds).
_AGAIN_S = 0.25
#: The longest wait for a master that is away, or does not know the job yet after a restart.
_PATIENCE_S = 60.0
#: Prints a line about one job.
_SAY = partial(note, "jobs")
_KEPT = """The master keeps the latest hundred ended jobs of each user.
`penstock explain` says why a job waits; `penstock logs JOB` prints the output of its tasks on this host."""


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = arguments.Parser("jobs", "Your jobs: their states, and the outcomes of recently ended ones.", _KEPT)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="ids: these only, with their stages and failed tasks")
    parser.add_argument("--all", action="store_true", help="jobs of all users (operators only)")
    parser.add_argument("--wait", action="store_true", help="return when the named jobs have ended")
    parser.add_argument("--timeout", type=arguments.duration, metavar="DURATION", help="of --wait, for example 10min")
    parser.add_argument(
        "--order",
        action="store_true",
        help="put the named jobs first of yours, in this order (operators: of all); without names: the master decides",
    )
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    options = parser.parse_args(argv)
    if options.jobs and options.all:
        raise usage_error("--all: name jobs, or list those of all users")
    if options.wait and not options.jobs:
        raise usage_error("--wait: name the jobs to wait for")
    if options.order and (options.wait or options.all):
        raise usage_error("--order: name jobs, without --wait and --all")
    if options.timeout is not None and not options.wait:
        raise usage_error("--timeout: only with --wait")
    status = Status.DONE
    if options.order:
        ordered = asked("jobs", lambda agent: agent.jobs.order(options.jobs), named="job")
        print_json(ordered) if options.json else _show_order(ordered)
    elif not options.jobs:
        found = asked("jobs", lambda agent: agent.jobs.list(everybody=options.all))
        print_json(found) if options.json else _show_list(found, everybody=options.all)
    else:
        found, status = asked(
            "jobs",
            lambda agent: ended(agent, options.jobs, options.timeout) if options.wait else _look(agent, options.jobs),
        )
        print_json(found) if options.json else _show_named(found)
    return status


def _show_list(found: Sequence[JobView], *, everybody: bool) -> None:
    if not found:  # rich need not be imported
        print("no jobs")
        return
    lean_imports.load("rich")
    from penstock.cli.render import console
    from penstock.cli.render_jobs import table

    console().print(table(found, time.time(), users=everybody))


def _show_order(ordered: JobsOrdered) -> None:
    if ordered.jobs:
        print(f"first of {'all' if ordered.of_all else 'your'} jobs, until they are over: {', '.join(ordered.jobs)}")
    else:
        print(f"no job is put first by {'an operator' if ordered.of_all else 'you'} any more")


def _show_named(found: Sequence[JobView]) -> None:
    if not found:  # rich need not be imported
        return
    lean_imports.load("rich")
    from rich.text import Text

    from penstock.cli.render import console
    from penstock.cli.render_jobs import details

    for one in found:
        for part in details(one, time.time()):
            console().print(part, soft_wrap=isinstance(part, Text))


async def _look(
    agent: BlockingRequests, jobs: Sequence[str], say: Callable[[str], object] = _SAY, patience_s: float = 0.0
) -> tuple[list[JobView], Status]:
    found = await _find(agent, jobs, time.monotonic() + patience_s)
    status = Status.DONE
    for job, user in found.foreign.items():
        say(f"job {job!r} belongs to {user}")
        status = Status.FAILED
    for job in found.unknown:
        say(f"there is no job {job!r}, or it ended too long ago; `penstock jobs` lists yours")
        status = Status.UNKNOWN
    return found.jobs, status


async def ended(
    agent: BlockingRequests, jobs: Sequence[str], timeout_s: float | None, say: Callable[[str], object] = _SAY
) -> tuple[list[JobView], Status]:
    """Wait until jobs have ended and all their tasks have stopped; return them and the worst status. ``say`` gets a
    line about each job that is not waited for to its end."""
    views, status = await _look(agent, jobs, say, min(_PATIENCE_S, _PATIENCE_S if timeout_s is None else timeout_s))
    latest = {view.job: view for view in views}
    over = None if timeout_s is None else time.monotonic() + timeout_s
    pause, longest = _LOOK_S
    while left := [job for job, view in latest.items() if view.state != "ended"]:
        if over is not None and time.monotonic() >= over:
            say(f"the time is over; {len(left)} of {len(latest)} not ended: {', '.join(left[:10])}")
            return list(latest.values()), status or Status.TIME_OVER
        await agent.pause(pause if over is None else max(0.0, min(pause, over - time.monotonic())))
        pause = min(2 * pause, longest)
        gone = await _update(agent, latest, left)
        for job in gone:
            say(f"job {job!r}: the master was restarted meanwhile and does not know how it ended")
            del latest[job]
            status = status or Status.FAILED
    failed = any(view.outcome != "succeeded" for view in latest.values())
    return list(latest.values()), status or (Status.FAILED if failed else Status.DONE)


async def _update(agent: BlockingRequests, latest: dict[str, JobView], left: Sequence[str]) -> list[str]:
    """Update the remaining jobs; return those that stay unknown for a while."""
    patience = time.monotonic() + _PATIENCE_S
    while True:
        found = await _find(agent, left, patience)
        latest.update({view.job: view for view in found.jobs})
        if not found.unknown or time.monotonic() >= patience:
            return found.unknown
        await agent.pause(_AGAIN_S)


async def _find(agent: BlockingRequests, jobs: Sequence[str], patience: float) -> Jobs:
    """Find jobs; until ``patience`` (monotonic), retry while the master is away, as it is for an agent that starts."""
    while True:
        try:
            return await agent.jobs.find(jobs)
        except RpcError as error:
            if error.code is not ErrorCode.UNAVAILABLE or time.monotonic() >= patience:
                raise
        await agent.pause(_AGAIN_S)
