"""The process that Spark's Worker starts as the executor: it has the real one placed, waits, and ends as that does.

``python -m penstock.engines.spark.stand_in /path/to/java ARGUMENTS``, started by Penstock's ``bin/java``. The executor
runs in a container of the agent with this process's standard streams. When this process dies, the connection closes and
the agent kills the container. Without an agent, or without a master, this process execs the executor, ungated.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from penstock.client import AgentClient, AgentUnavailable, Job, JobCancelled, NotPlaced
from penstock.client.stdio import pass_stdio
from penstock.engines.spark import driver
from penstock.engines.spark.executor_command import ExecutorCommand, NoExecutor, read
from penstock.engines.spark.interface import Interface, NotPublished
from penstock.engines.spark.settings import Settings
from penstock.model.container import ContainerSpec, Ended, EndedBy
from penstock.model.executor import Executor
from penstock.model.resources import KindAmounts
from penstock.model.work import TaskRequest
from penstock.wire.errors import RpcError
from penstock.wire.utf8 import sendable

if TYPE_CHECKING:
    from penstock.wire.agent_api import StageProgress

STAGE = "executors"
#: The shortest interval of requests to the driver. It grows if the answers take more than this share of the time, up
#: to a limit, so that the end of a stage is noticed in time.
_PROGRESS_S = 1.0
_PROGRESS_SHARE = 0.05
_PROGRESS_LATE_S = 5.0
#: After this time without an answer from the driver, the user is told; requests continue.
_SILENT_S = 60.0
#: After this time without a place, Spark's log of the executor says that it waits.
_PATIENCE_S = 30.0
#: At an application's end its driver tells the executors to stop, and its Worker terminates them, in any order. Only
#: an executor that stops by itself ends with 0, and only such runs are recorded. Spark's Worker itself waits 10 s.
_BY_ITSELF_S = 5.0
_KILLED = 128 + signal.SIGKILL
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ungated(Exception):  # noqa: N818 - no error: the executor runs, outside of Penstock
    """Nothing was started, and no container can be; the message has the reason."""


def main(argv: list[str]) -> int:
    """Stand in for ``argv`` (java and its arguments); return the executor's exit status, or exec the executor."""
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
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec keeps ignored signals ignored
    os.execv(java, [java, *arguments])  # noqa: S606 - the program requested by Spark


async def _run(java: str, command: ExecutorCommand, settings: Settings) -> int:
    """Have the executor placed, and wait for its end. A signal before its placement ends this process and the job.

    Raises:
        Ungated, AgentUnavailable: no request to start it was sent.
    """
    interface = Interface(os.environ.get("SPARK_LOG_URL_STDOUT", ""), command.application_id)
    name = f"spark {command.application_id}/{command.executor_id}"[:128]
    async with await AgentClient.connect(client=name) as agent:
        if not agent.welcome.master:
            raise Ungated("this host's agent has no master that places executors")
        settings = replace(settings, application=settings.application or await _application(interface, command))
        reasons = ["the master starts it when its demand fits here"]
        try:
            job = await agent.register_job(settings.application, on_waiting=lambda waiting: reasons.append(waiting.why))
            waits = asyncio.get_running_loop().call_later(
                _PATIENCE_S, lambda: _say(f"still waits for its place: {reasons[-1]}")
            )
            await job.admitted()
            del reasons[1:]
            stdio = await asyncio.to_thread(pass_stdio, agent.socket, (0, 1, 2))
            request = _request(java, command, settings, agent.welcome.node, stdio)
        except RpcError as error:
            raise Ungated(str(error)) from None
        except JobCancelled as error:
            _say(str(error))
            return 1
        try:
            await _place(job, request)
            await job.placed(request.task)
            waits.cancel()
            return await _stand(agent, job, request.task, interface, command.driver_url)
        except (RpcError, AgentUnavailable, JobCancelled, NotPlaced) as error:
            _say(str(error))  # it may have been started: Spark will retry
            return 1


def _request(java: str, command: ExecutorCommand, settings: Settings, node: str, stdio: str) -> TaskRequest:
    """Return the executor's placement request: on this node, with this process's environment and directory.

    Raises:
        RpcError: an argument or the directory is not UTF-8.
    """
    whole = ContainerSpec(
        argv=(java, *command.elastic()),
        name=f"{settings.application} {command.application_id}/{command.executor_id}"[:128],
        env=dict(os.environ),
        cwd=str(Path.cwd()),
        cpu_cores=settings.cores or float(command.cores),
        memory_bytes=settings.promise_bytes(command.heap_bytes),
        stdio=stdio,
    )
    spec, left_out = sendable(whole)
    if left_out:
        _say(left_out)
    executor = Executor(
        application=settings.application,
        input_bytes=settings.input_bytes,
        run=command.application_id[:128],
        sizing=settings.sizing,
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


async def _place(job: Job, request: TaskRequest) -> None:
    """Ask for a place for the executor.

    Raises:
        Ungated: the agent refused the request.
        RpcError: a restarted agent refused to take the job back; the previous one may have started the executor.
    """
    try:
        await job.place(STAGE, [request])
    except RpcError as error:
        if job.over:
            raise
        raise Ungated(str(error)) from None


async def _application(interface: Interface, command: ExecutorCommand) -> str:
    try:
        return (await interface.name())[:128]
    except NotPublished as problem:
        _say(f"the application's name is not known ({problem}); set spark.executorEnv.PENSTOCK_APPLICATION")
        return command.application_id[:128]


async def _stand(agent: AgentClient, job: Job, task: str, interface: Interface, driver_url: str) -> int:
    """Serve the placed executor until its end: pass signals to it, and the driver's progress to the agent, and have a
    driver on this host ranked with it.
    """
    job.on_stuck = lambda stuck: _say(f"late, and {stuck.node} has more room; copies of its tasks are best run there")
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in _FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, signals.put_nowait, number)
    beside = [
        loop.create_task(_forward(signals, agent, job, task)),
        loop.create_task(_tell_progress(job, interface)),
        loop.create_task(_lend_driver(agent, job, driver_url)),
    ]
    try:
        ended = await job.ended(task)
    finally:
        for each in beside:
            each.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    return _exit_status(ended)


async def _lend_driver(agent: AgentClient, job: Job, driver_url: str) -> None:
    pid = await asyncio.to_thread(driver.find, driver_url)
    try:
        if pid:
            await agent.lend(job.id, pid)
    except (RpcError, AgentUnavailable) as error:
        _say(f"the driver, process {pid}, is not ranked with its executors: {error}")


async def _forward(signals: asyncio.Queue[int], agent: AgentClient, job: Job, task: str) -> None:
    """Pass signals on; the first one only after :data:`_BY_ITSELF_S`."""
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
        except NotPublished as problem:
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
    """Return the exit status for Spark's Worker; report an end with another cause."""
    if ended.by in {EndedBy.EXIT, EndedBy.SIGNAL}:
        return _KILLED if ended.exit_status is None else ended.exit_status
    _say(f"the executor ended: {ended.by}{': ' + ended.reason if ended.reason else ''}")
    return ended.exit_status or _KILLED


def _say(text: str) -> None:
    print(f"penstock: {' '.join(text.split())}", file=sys.stderr, flush=True)  # noqa: T201 - goes to the executor's log


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
