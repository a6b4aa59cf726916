"""The process that Spark's Worker takes for the executor: it asks for a place, waits, and ends as the real one does.

``python -m penstock.engines.spark.stand_in /path/to/java ARGUMENTS``, started by our ``bin/java``. The executor runs in
a container of the agent with the standard streams that Spark gave us. When this process dies, the connection closes and
the agent kills the container. Without an agent, or without a master, the executor takes this process's place ungated.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from penstock.client import AgentClient, AgentUnavailable, Job, JobCancelled, NotPlaced
from penstock.client.stdio import pass_stdio
from penstock.engines.spark.executor_command import ExecutorCommand, NoExecutor, read
from penstock.engines.spark.interface import Interface, NotTold
from penstock.engines.spark.settings import Settings
from penstock.model.container import ContainerSpec, Ended, EndedBy
from penstock.model.executor import Executor
from penstock.model.resources import KindAmounts
from penstock.model.work import TaskRequest
from penstock.wire.errors import RpcError

if TYPE_CHECKING:
    from penstock.wire.agent_api import StageProgress

STAGE = "executors"
#: The driver is asked so often at most, and where its answers take more than this share of the time less often, but
#: never later than a stage may be noticed.
_PROGRESS_S = 1.0
_PROGRESS_SHARE = 0.05
_PROGRESS_LATE_S = 5.0
#: A driver that has not answered for so long is said to tell nothing; it is asked again all the same.
_SILENT_S = 60.0
#: Spark's log of an executor that has no place for so long says that it waits.
_PATIENCE_S = 30.0
#: When an application is over its driver tells the executors to stop, and its Worker terminates them, whichever comes
#: first. Who stops by itself ends with 0, and only such a run is one to learn from. Spark's Worker waits 10 s itself.
_BY_ITSELF_S = 5.0
_KILLED = 128 + signal.SIGKILL
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ungated(Exception):  # noqa: N818 - no error: the executor runs, outside of Penstock
    """Nothing was started, and nobody could start it in a container; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stand:
    """Whom we stand in for."""

    java: str
    command: ExecutorCommand
    settings: Settings
    application: str

    def request(self, node: str, stdio: str) -> TaskRequest:
        """The executor as the agent is asked for it: on this node, with this process's environment and directory."""
        command = self.command
        name = f"{self.application} {command.application_id}/{command.executor_id}"
        spec = ContainerSpec(
            argv=(self.java, *command.elastic()),
            name=name[:128],
            env=dict(os.environ),
            cwd=str(Path.cwd()),
            cpu_cores=self.settings.cores or float(command.cores),
            memory_bytes=self.settings.promise_bytes(command.heap_bytes),
            stdio=stdio,
        )
        executor = Executor(
            application=self.application,
            input_bytes=self.settings.input_bytes,
            run=command.application_id[:128],
            sizing=self.settings.sizing,
            jvm=True,
        )
        return TaskRequest(
            task=f"executor-{command.executor_id}"[:128],
            usage=KindAmounts(),
            memory_bytes=spec.memory_bytes,
            nodes=(node,),
            command=spec,
            executor=executor,
        )


def main(argv: list[str]) -> int:
    """Stand in for ``argv`` (java and its arguments); returns the executor's exit status, or becomes the executor."""
    java, *arguments = argv
    try:
        command, settings = read(tuple(arguments)), Settings.from_environment(os.environ)
    except NoExecutor as problem:
        _become(java, arguments, str(problem))
    except ValueError as problem:
        _say(str(problem))
        return 2
    try:
        return asyncio.run(_run(java, command, settings))
    except (Ungated, AgentUnavailable) as problem:
        _become(java, arguments, str(problem))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _become(java: str, arguments: list[str], why: str) -> NoReturn:
    _say(f"{why}; this executor runs outside of Penstock")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what is ignored stays so
    os.execv(java, [java, *arguments])  # noqa: S606 - the program that Spark asked for


async def _run(java: str, command: ExecutorCommand, settings: Settings) -> int:
    """Have the executor placed, and wait for its end. A signal before it has its place ends us, and all is withdrawn.

    Raises:
        Ungated, AgentUnavailable: nobody was asked to start it.
    """
    interface = Interface(os.environ.get("SPARK_LOG_URL_STDOUT", ""), command.application_id)
    name = f"spark {command.application_id}/{command.executor_id}"[:128]
    async with await AgentClient.connect(client=name) as agent:
        if not agent.welcome.master:
            raise Ungated("this host's agent has no master that places executors")
        application = settings.application or await _application(interface, command)
        stand = Stand(java=java, command=command, settings=settings, application=application)
        try:
            job = await agent.register_job(application)
            await job.admitted()
            request = stand.request(agent.welcome.node, await pass_stdio(agent.socket, (0, 1, 2)))
        except RpcError as error:
            raise Ungated(str(error)) from None
        try:
            await job.place(STAGE, [request])
            return await _stand(agent, job, request.task, interface)
        except RpcError as error:
            raise Ungated(str(error)) from None
        except (AgentUnavailable, JobCancelled, NotPlaced) as error:  # it may have been started: Spark asks anew
            _say(str(error))
            return 1


async def _application(interface: Interface, command: ExecutorCommand) -> str:
    try:
        return (await interface.name())[:128]
    except NotTold as problem:
        _say(f"the application's name is not known ({problem}); set spark.executorEnv.PENSTOCK_APPLICATION")
        return command.application_id[:128]


async def _stand(agent: AgentClient, job: Job, task: str, interface: Interface) -> int:
    """From the executor's place to its end: signals go on to it, the driver's progress to the agent."""
    job.on_stuck = lambda stuck: _say(f"late, and {stuck.node} has more room; copies of its tasks are best run there")
    loop = asyncio.get_running_loop()
    waits = loop.call_later(
        _PATIENCE_S, _say, "still waits for its place: the master starts it when its demand fits here"
    )
    await job.placed(task)
    waits.cancel()
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in _FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, signals.put_nowait, number)
    beside = [
        loop.create_task(_forward(signals, agent, job, task)),
        loop.create_task(_tell_progress(job, interface)),
    ]
    try:
        ended = await job.ended(task)
    finally:
        for each in beside:
            each.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    return _exit_status(ended)


async def _forward(signals: asyncio.Queue[int], agent: AgentClient, job: Job, task: str) -> None:
    """The first signal is passed on late: see :data:`_BY_ITSELF_S`."""
    number = await signals.get()
    with contextlib.suppress(TimeoutError):
        number = await asyncio.wait_for(signals.get(), _BY_ITSELF_S)
    while True:
        try:
            for each in (await agent.status())["containers"]:
                if (each["job"], each["task"]) == (job.id, task):
                    await (await agent.attach(each["container"])).signal(number)
        except (RpcError, AgentUnavailable) as error:
            _say(f"signal {number} was not passed on: {error}")
        number = await signals.get()


async def _tell_progress(job: Job, interface: Interface) -> None:
    loop = asyncio.get_running_loop()
    told: list[StageProgress] | None = None
    silent_at: float | None = loop.time() + _SILENT_S
    while True:
        asked_at = loop.time()
        try:
            stages = await interface.stages()
        except NotTold as problem:
            if silent_at is not None and loop.time() > silent_at:
                silent_at = None
                _say(f"the application's stages are not known: {problem}")
            await asyncio.sleep(_PROGRESS_S if silent_at is not None else _PROGRESS_LATE_S)
            continue
        if stages != told:
            job.progress(stages)
            told, silent_at = stages, None
        pause_s = (loop.time() - asked_at) / _PROGRESS_SHARE
        await asyncio.sleep(min(max(pause_s, _PROGRESS_S), _PROGRESS_LATE_S))


def _exit_status(ended: Ended) -> int:
    """As Spark's Worker would have seen it; why it was ended by somebody else is said."""
    if ended.by in {EndedBy.EXIT, EndedBy.SIGNAL}:
        return _KILLED if ended.exit_status is None else ended.exit_status
    _say(f"the executor ended: {ended.by}{': ' + ended.reason if ended.reason else ''}")
    return ended.exit_status or _KILLED


def _say(text: str) -> None:
    print(f"penstock: {' '.join(text.split())}", file=sys.stderr, flush=True)  # noqa: T201 - Spark keeps it with the executor


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
