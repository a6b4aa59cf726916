"""``penstock logs``: print the output of a container or of a job on this host, and optionally follow it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.copied_output import CopiedOutput, reader_is_gone
from penstock.cli.errors import CommandError, usage_error
from penstock.cli.exit_statuses import Status
from penstock.cli.plain_text import enumeration
from penstock.cli.session import with_agent
from penstock.wire.errors import ErrorCode, RpcError

if TYPE_CHECKING:
    from penstock.client import AgentClient
    from penstock.client.container import Container
    from penstock.wire.jobs_api import Jobs, JobView

#: The interval of reads from a running container (seconds).
_LOOK_S = 0.25
#: The states of a job of which tasks may still start.
_MAY_START = frozenset({"waiting", "admitted", "running"})
_KEPT = """Of a job, the output of its tasks on this host is printed, each below a line `--- TASK` if it has several.
The messages of a job submitted with --detach and the standard error of failed tasks go to standard error, as with
`penstock submit`. The output of a task on another node is printed there.

The agent keeps the newest 8 to 16 MiB of each stream (key output_max_bytes) until it drops the
container. Output that went directly to your terminal or file, as with `penstock run`, is not kept."""


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = arguments.Parser("logs", "Print the output of a container of this host, or of a job.", _KEPT)
    parser.add_argument(
        "container", metavar="CONTAINER|JOB", help="a container's id, as `penstock status` shows it, or a job's"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="continue until the container or the job has ended")
    parser.add_argument(
        "-n", "--tail", type=_lines, metavar="N", help="print only the last N lines so far, of a job those of each task"
    )
    parser.add_argument("--stderr", action="store_true", help="print standard error instead of standard output")
    parser.add_argument(
        "--json", action="store_true", help="print the results of a job that was submitted here with --detach"
    )
    options = parser.parse_args(argv)
    if options.json and (options.stderr or options.tail is not None):
        raise usage_error("--json: prints the results of a job; leave out --stderr and --tail")
    with_agent("logs", lambda agent: _print(agent, options), named="container")
    return 0


async def _print(agent: AgentClient, options: argparse.Namespace) -> None:
    name, stream = options.container, "stderr" if options.stderr else "stdout"
    containers = (await agent.status()).get("containers", [])
    from penstock.cli import job_logs

    is_container = any(one.get("container") == name for one in containers)
    answer = await job_logs.ask_master(agent, name) if options.json or not is_container else None
    view = job_logs.view_of(answer, name)
    manager = job_logs.manager_of(containers, name, view, agent.welcome.user)
    ran_here = any(one.get("job") == name for one in containers)
    if options.json:
        if manager is None:
            raise CommandError(f"--json: {_no_results(name, view, agent.welcome.node)}", status=Status.UNKNOWN)
        await job_logs.print_results(agent, manager, name, follow=options.follow)
    elif manager is not None or ran_here or (options.follow and view is not None and view.state != "ended"):
        await job_logs.JobOutput(agent, name, view, stream, options.tail).copy(follow=options.follow)
    else:
        if answer is not None:
            _refuse_job(answer, name, agent.welcome.node)
        running = await _attached(agent, name, away=answer is None and not is_container)
        await _print_container(running, stream, options.tail, follow=options.follow)


def _lines(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a number of lines; write for example 20")
    return int(text)


def _no_results(name: str, view: JobView | None, here: str) -> str:
    if view is not None and view.origin != here:
        return f"job {name!r} was submitted on {view.origin}; ask there"
    return f"this host has no results of a detached job {name[:128]!r}; `penstock jobs` lists your jobs"


def _refuse_job(answer: Jobs, name: str, here: str) -> None:
    """Refuse a job of which this host has no output.

    Raises:
        CommandError: the master knows a job of this id.
    """
    from penstock.cli import job_logs
    from penstock.wire.jobs_api import MOST_NODES

    if name in answer.foreign:
        raise CommandError(f"job {name!r} belongs to {answer.foreign[name]}")
    for job in answer.jobs:
        if job.origin != here:
            why = f"job {name!r} was submitted on {job.origin}; ask there"
        elif job.state in _MAY_START:
            why = f"this host has no output of job {name!r} yet; --follow waits for it"
        else:
            why = f"this host keeps no output of job {name!r}: none was written here, or it ended too long ago"
        nodes = job_logs.nodes_of(job)
        if others := sorted(set(nodes) - {here, job.origin}):
            run = "ran" if job.state == "ended" else "run or ran"
            why += f"; its tasks {run} on {enumeration(others, cut=len(nodes) >= MOST_NODES)}"
            why += ", where their output is" if job.ran_on else ""
        raise CommandError(why, status=Status.UNKNOWN)


async def _attached(agent: AgentClient, name: str, *, away: bool) -> Container:
    """Attach to a container. ``away``: no master answered whether there is a job of this name.

    Raises:
        CommandError: there is no such container.
    """
    try:
        return await agent.attach(name)
    except RpcError as error:
        if error.code is not ErrorCode.BAD_REQUEST or error.body.field != "container":
            raise
    named, listed = repr(name[:128]), "`penstock status` lists the containers of this host"
    if away:
        why = f"there is no container {named} on this host, and no master answers whether there is such a job; {listed}"
    else:
        why = f"there is no container or job {named}, or it ended too long ago; {listed}, `penstock jobs` your jobs"
    raise CommandError(why, status=Status.UNKNOWN)


async def _print_container(running: Container, stream: str, tail: int | None, *, follow: bool) -> None:
    ended = asyncio.ensure_future(running.wait())
    output = CopiedOutput(running, ended, stream, _write, tail)
    try:
        while True:
            await output.copy()
            if output.complete or not follow:
                return
            if reader_is_gone():
                raise BrokenPipeError
            await asyncio.wait([ended], timeout=_LOOK_S)
    finally:
        ended.cancel()


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
