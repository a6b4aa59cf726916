"""`penstock submit`, against an agent that the test steers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.cli import submission
from penstock.cli.errors import CommandError
from penstock.cli.jobfile import of_file
from penstock.cli.submission import Submission
from penstock.cli.work import Work
from penstock.client.session import Session
from penstock.client.signals import Signals
from penstock.model.container import ContainerSpec, Ended, EndedBy
from penstock.model.work import OpportunisticJob
from penstock.opgraph import (
    AdmissionAwaited,
    CancelRequested,
    Event,
    Instruction,
    JobManager,
    PlaceStage,
    Started,
    TaskPlaced,
)
from penstock.wire.agent_api import JobWaiting, StageProgress
from tests.fakes.agent import FakeAgent, FakeContainer
from tests.fakes.agent_thread import AgentThread

OK = Ended(by=EndedBy.EXIT, exit_status=0)
Submit = Callable[..., "Future[int]"]


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Submit]:
    """Starts the command in a thread, where it catches no signals; its task may have other keys."""
    monkeypatch.setattr(Signals, "_catch", lambda self: None)
    with ThreadPoolExecutor(1) as pool:
        yield lambda keys="": pool.submit(Submission(job_file(tmp_path, keys), as_json=False).run)


def job_file(directory: Path, keys: str = "", opportunistic: OpportunisticJob = None) -> Work:
    """A job of one task, with other keys of it."""
    path = directory / "job.toml"
    path.write_text(f'name = "big"\n[[task]]\nname = "a"\ncommand = "true"\n{keys}')
    return of_file(path, opportunistic=opportunistic)


def job_of(agent: AgentThread) -> str:
    """Its id, once its task was asked for."""
    agent.until(lambda fake: bool(fake.placed))
    return next(job for job, _ in agent.agent.placed)


def test_a_request_that_no_waiting_helps_is_refused_though_that_is_reported_before_the_job_is_known(
    agent: AgentThread, submit: Submit
) -> None:
    agent.agent.admits = False
    agent.agent.waits, agent.agent.waits_for_ever = "it wants 91 TiB reserved", True
    with pytest.raises(CommandError, match="it wants 91 TiB reserved"):
        submit().result(60)
    assert [ended.failed for ended in agent.agent.called("end_job")] == ["it wants 91 TiB reserved"]


def test_a_task_that_no_node_can_hold_ends_the_job_before_its_admission(
    agent: AgentThread, submit: Submit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job's memory is at most its host's: it may wait for it for ever where that is never free."""
    agent.agent.admits = False
    running = submit('memory = "2GiB"')
    job = job_of(agent)
    why = "it asks for 2 GiB, and a node that it may use has at most 1 GiB; ask for less"
    agent.do(lambda fake: fake.end_task(job, "a", Ended(by=EndedBy.REFUSED, reason=why)))
    assert running.result(60) == 1
    assert why in capsys.readouterr().out
    assert [ended.failed for ended in agent.agent.called("end_job")] == [f"1 task refused; first a: {why}"]


def test_of_a_failed_task_the_last_lines_of_both_streams_are_printed(
    agent: AgentThread, submit: Submit, capsys: pytest.CaptureFixture[str]
) -> None:
    running = submit()
    job = job_of(agent)

    def fail(fake: FakeAgent) -> None:
        fake.containers["c-9"] = FakeContainer("c-9", ContainerSpec(argv=("x",)), fake.placed[job, "a"])
        fake.document["containers"] = [{"container": "c-9", "job": job, "task": "a"}]
        fake.outputs = {"stdout": b"no line feed", "stderr": b"and why\n"}
        fake.end_task(job, "a", Ended(by=EndedBy.EXIT, exit_status=3))

    agent.do(fail)
    assert running.result(60) == 1
    assert capsys.readouterr().err.endswith("--- a\nno line feed\nand why\n")


def test_a_large_task_of_a_job_that_may_run_on_slack_waits_for_the_admission(
    agent: AgentThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[Event, list[Instruction]]] = []
    genuine = JobManager.handle

    def handle(self: JobManager, event: Event) -> list[Instruction]:
        instructions = genuine(self, event)
        said.append((event, instructions))
        if isinstance(event, AdmissionAwaited):
            agent.do(lambda fake: fake.admit(next(iter(fake.known_jobs))))
        return instructions

    monkeypatch.setattr(JobManager, "handle", handle)
    monkeypatch.setattr(Signals, "_catch", lambda self: None)
    agent.agent.admits = False
    work = job_file(tmp_path, 'memory = "2GiB"', opportunistic=True)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(Submission(work, as_json=False).run)
        job = job_of(agent)
        agent.do(lambda fake: fake.end_task(job, "a", OK))
        assert running.result(60) == 0
    assert [type(event) for event, out in said if any(isinstance(one, PlaceStage) for one in out)] == [Started]


def test_the_reason_for_waiting_is_printed_in_place_of_the_line_without_one(
    agent: AgentThread, submit: Submit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Submission._waits

    def waits(self: Submission, waiting: JobWaiting) -> None:
        told(self, waiting)
        monkeypatch.setattr(submission, "_WAITS_AFTER_S", 0.0)

    monkeypatch.setattr(submission, "_WAITS_AFTER_S", 3600.0)
    monkeypatch.setattr(Submission, "_waits", waits)
    agent.agent.admits = False
    agent.agent.waits = "it wants 1 GiB reserved, 381 MiB of 954 MiB is not reserved"
    running = submit()
    agent.until(lambda fake: bool(fake.called("progress")))
    job = next(iter(agent.agent.known_jobs))
    agent.do(lambda fake: fake.admit(job))
    job_of(agent)
    agent.do(lambda fake: fake.end_task(job, "a", OK))
    assert running.result(60) == 0
    said = capsys.readouterr().err.splitlines()
    assert f"penstock submit: waits: {agent.agent.waits}" in said
    assert "penstock submit: waiting until the cluster has memory for the job" not in said


def test_a_job_that_is_stopped_before_it_began_is_not_reported_as_done(agent: AgentThread, tmp_path: Path) -> None:
    agent.agent.admits = False

    def stop() -> None:
        agent.until(lambda fake: bool(fake.called("progress")))
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    stopping = threading.Thread(target=stop)
    stopping.start()
    assert Submission(job_file(tmp_path), as_json=False).run() == 128 + signal.SIGTERM
    stopping.join(60)
    assert len(agent.agent.called("end_job")) == 1
    assert sum(stage.done for told in agent.agent.called("progress") for stage in told.stages) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_does_not_wait_for_the_job(agent: AgentThread, tmp_path: Path) -> None:
    go_on: list[Callable[[], None]] = []

    def stop() -> None:
        job_of(agent)
        go_on.append(agent.pause())  # it answers nothing
        for number in (signal.SIGINT, signal.SIGTERM):  # two of one kind may arrive as one
            os.kill(os.getpid(), number)

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(KeyboardInterrupt):
        Submission(job_file(tmp_path), as_json=False).run()
    stopping.join(60)
    go_on[0]()
    assert not agent.agent.called("end_job")


def test_while_its_task_runs_it_sleeps_until_something_comes(
    agent: AgentThread, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []
    sleeps = threading.Event()
    genuine = Session.wait

    def wait(self: Session, timeout_s: float | None) -> None:
        waits.append(timeout_s)
        if timeout_s is None:
            sleeps.set()
        genuine(self, timeout_s)

    monkeypatch.setattr(Session, "wait", wait)
    monkeypatch.setattr(submission, "_PROGRESS_S", 0.0)
    running = submit()
    job = job_of(agent)
    assert sleeps.wait(60)
    agent.do(lambda fake: fake.end_task(job, "a", OK))
    assert running.result(60) == 0
    assert waits[-1] is None
    assert [[stage.done for stage in told.stages] for told in agent.agent.called("progress")] == [[0], [1]]


@pytest.mark.parametrize("admits", [True, False])
def test_a_restarted_agent_is_asked_for_the_answers_that_its_predecessor_owed(
    agent: AgentThread, submit: Submit, admits: bool
) -> None:
    running = submit()
    job_of(agent)
    agent.stop()
    agent.agent.admits = admits
    agent.start()
    if not admits:
        agent.until(lambda fake: bool(fake.known_jobs))
        agent.do(lambda fake: fake.admit(next(iter(fake.known_jobs))))
    job = job_of(agent)
    agent.do(lambda fake: fake.end_task(job, "a", OK))
    assert running.result(60) == 0
    assert [asked.job for asked in agent.agent.called("place")] == [job]
    assert agent.agent.called("progress")


def many(directory: Path) -> Work:
    path = directory / "many.toml"
    tasks = "".join(f'[[task]]\nname = "t{number}"\nstage = "s"\ncommand = "true"\n' for number in range(20))
    path.write_text(f'name = "many"\n{tasks}')
    return of_file(path)


def test_a_report_that_takes_longer_than_its_interval_is_not_made_for_each_event(
    agent: AgentThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Signals, "_catch", lambda self: None)
    now_s, reports = 0.0, 0
    genuine = JobManager.progress

    def progress(self: JobManager) -> list[StageProgress]:
        nonlocal now_s, reports
        now_s, reports = now_s + 10 * submission._PROGRESS_S, reports + 1
        return genuine(self)

    monkeypatch.setattr(JobManager, "progress", progress)
    monkeypatch.setattr(submission, "time", SimpleNamespace(monotonic=lambda: now_s))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(Submission(many(tmp_path), as_json=False).run)
        job = job_of(agent)
        agent.do(lambda fake: [fake.end_task(job, f"t{number}", OK) for number in range(20)])
        assert running.result(60) == 0
    assert reports == 2, "at the beginning and at the end"


def test_a_signal_is_noticed_before_the_events_that_have_come(
    agent: AgentThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[Event] = []
    genuine = JobManager.handle

    def handle(self: JobManager, event: Event) -> list[Instruction]:
        handled.append(event)
        if isinstance(event, TaskPlaced) and event.task == "t0":
            os.kill(os.getpid(), signal.SIGINT)
        return genuine(self, event)

    monkeypatch.setattr(JobManager, "handle", handle)
    assert Submission(many(tmp_path), as_json=False).run() == 128 + signal.SIGINT
    at = next(index for index, event in enumerate(handled) if isinstance(event, TaskPlaced))
    assert isinstance(handled[at + 1], CancelRequested)


def test_submit_needs_no_event_loop(agent: AgentThread, tmp_path: Path) -> None:
    job_file(tmp_path)
    path = tmp_path / "job.toml"
    code = "import sys; from penstock.cli.main import main; print(main(sys.argv[1:]), *sys.modules, file=sys.stderr)"
    command = [sys.executable, "-I", "-c", code, "submit", "--quiet", str(path)]
    environment = {**os.environ, "PENSTOCK_SOCKET": str(agent.socket)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        job = job_of(agent)
        agent.do(lambda fake: fake.end_task(job, "a", OK))
        _, said = running.communicate(timeout=60)
    status, *modules = said.split()
    assert status == "0"
    unwanted = {"asyncio", "logging", "ssl", "rich", "dataclasses", "typing_extensions", "penstock.client.agent"}
    unwanted |= {"penstock.wire.agent_api", "penstock.wire.container_api", "penstock.model.decode_errors"}
    unwanted |= {"encodings.utf_8_sig", "graphlib"}
    assert not unwanted & set(modules)


def test_submit_compiles_no_annotations(agent: AgentThread, tmp_path: Path) -> None:
    job_file(tmp_path)
    code = """
import builtins, sys
compile = builtins.compile
def told(source, name, *given, **named):
    if name == "<string>":  # of a module without byte code, it is the file
        print(source)
    return compile(source, name, *given, **named)
builtins.compile = told
from penstock.cli.main import main
main(sys.argv[1:])
"""
    command = [sys.executable, "-I", "-c", code, "submit", "--quiet", "--json", str(tmp_path / "job.toml")]
    environment = {**os.environ, "PENSTOCK_SOCKET": str(agent.socket)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        job = job_of(agent)
        agent.do(lambda fake: fake.end_task(job, "a", OK))
        printed, _ = running.communicate(timeout=60)
    assert printed.startswith("{")


def test_the_manager_of_a_detached_job_that_was_cancelled_before_it_joined_ends_without_it(
    agent: AgentThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``submit --detach`` takes the line of the accepted job for the manager's joining it, and would return 0."""
    monkeypatch.setattr(Signals, "_catch", lambda self: None)
    agent.agent.cancelled["j-1"] = "ann"
    assert Submission(job_file(tmp_path), as_json=True, manages="j-1").run() == 1
    assert capsys.readouterr().err.splitlines() == ["penstock submit: cancelled by ann"]
    assert not agent.agent.called("place")
