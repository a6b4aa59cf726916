"""A job's DAG: the dependencies, under a gate that records; and a whole job in processes of its own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from demo.corpus import Corpus, Document, Partition, materialise
from demo.gates import SlotGate, StageLeft
from demo.job import AnalyticsJob, JobError
from demo.records import JobResult, JobSpec

MAPS, REDUCES = 6, 3


class RecordingGate:
    """Lets all pass in the order of their requests, two CPUs and one disk at a time, and records it."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.running = 0
        self.told: list[list[StageLeft]] = []
        self._slots = {"cpu": asyncio.Semaphore(2), "disk": asyncio.Semaphore(1), "network": asyncio.Semaphore(2)}

    async def begin(self) -> None:
        self.running += 1

    @asynccontextmanager
    async def monotask(self, kind: str, input_bytes: int, stage: str) -> AsyncIterator[None]:
        assert self.running > 0
        async with self._slots[kind]:
            self.events.append((f"{kind} {input_bytes}", stage))
            yield

    def done(self) -> None:
        self.running -= 1

    def progress(self, stages: Sequence[StageLeft]) -> None:
        self.told.append(list(stages))

    async def end(self) -> None:
        raise AssertionError("the job's process ends it, not the DAG")


class FakeExecutor:
    """Executes at once; asserts that the gate is asked first and that it computes one thing at a time."""

    def __init__(self, fails: str = "") -> None:
        self.busy = asyncio.Lock()
        self.tasks = 0
        self.computing = 0
        self.calls: list[tuple[str, int]] = []
        self._fails = fails

    async def call(self, do: str, task: int) -> dict[str, Any]:
        self.calls.append((do, task))
        if do == self._fails:
            raise JobError(f"{do} failed")
        self.computing += do in {"map", "merge"}
        assert self.computing <= 1
        await asyncio.sleep(0)
        self.computing -= do in {"map", "merge"}
        result: Any = [10 * (n + 1) for n in range(REDUCES)] if do == "map" else 5
        return {"do": do, "task": task, "result": result, "cpu_s": 0.0}


def corpus() -> Corpus:
    return Corpus([Partition(f"p{n}", 100 + n, [Document(0, 0, 100 + n)]) for n in range(MAPS)], ["d"], [b"a", b"b"])


async def execute(executors: list[FakeExecutor]) -> tuple[RecordingGate, AnalyticsJob]:
    gate = RecordingGate()
    job = AnalyticsJob(corpus(), executors, gate)  # type: ignore[arg-type]
    await job.run()
    return gate, job


async def test_the_reduce_stage_waits_for_every_map() -> None:
    gate, job = await execute([FakeExecutor(), FakeExecutor()])
    order = [stage for _, stage in gate.events]
    assert order == sorted(order), "all of map, then all of reduce"
    assert gate.running == 0
    assert len(job.works) == len(order) == MAPS * 2 + REDUCES * 3


async def test_the_monotasks_of_a_task_run_in_order_with_their_sizes() -> None:
    _, job = await execute([FakeExecutor()])
    done = {task: [(w.kind, w.input_bytes) for w in job.works if w.task == task] for task in ("map-2", "reduce-1")}
    assert done == {"map-2": [("disk", 102), ("cpu", 102)], "reduce-1": [("network", 120), ("cpu", 120), ("disk", 5)]}


async def test_it_reports_the_remainder_of_both_stages() -> None:
    gate, _ = await execute([FakeExecutor(), FakeExecutor()])
    reads = sum(100 + n for n in range(MAPS))
    assert gate.told[0] == [("map", MAPS, 0, reads), ("reduce", REDUCES, 0, 0)], "its input is not known yet"
    assert [("map", MAPS, MAPS, 0), ("reduce", REDUCES, 0, MAPS * (10 + 20 + 30))] in gate.told
    assert gate.told[-1] == [("map", MAPS, MAPS, 0), ("reduce", REDUCES, REDUCES, 0)]
    done = [sum(stage.done for stage in stages) for stages in gate.told]
    assert done == sorted(done) and len(done) == 2 + MAPS + REDUCES


async def test_a_task_stays_on_its_worker_and_work_is_spread() -> None:
    executors = [FakeExecutor(), FakeExecutor()]
    await execute(executors)
    for executor in executors:
        read = {task for do, task in executor.calls if do == "read"}
        assert read == {task for do, task in executor.calls if do == "map"}
        assert len(read) >= MAPS // 3
        assert {t for do, t in executor.calls if do == "pull"} == {t for do, t in executor.calls if do == "write"}
        assert executor.tasks == 0


@pytest.mark.parametrize("fails", ["read", "map", "merge", "write"])
async def test_a_failed_monotask_fails_the_job(fails: str) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await execute([FakeExecutor(fails)])
    assert caught.group_contains(JobError, match=f"{fails} failed")


async def test_a_static_executor_has_so_many_tasks_at_once_as_slots() -> None:
    gate = SlotGate(2)
    await gate.begin()
    await gate.begin()
    third = asyncio.create_task(gate.begin())
    await asyncio.sleep(0)
    assert not third.done()
    gate.done()
    await third


def spec_in(directory: Path, part: float = 1.0) -> JobSpec:
    text, output, result = (str(directory / name) for name in ("text/corpus.json", "o", "r"))
    return JobSpec("sort", "sort", part, text, output, result, 2, 2)


def execute_alone(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a job in a process of its own, with its start command at once."""
    command = [sys.executable, "-m", "demo.job", str(directory / "spec.json")]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["word-count", "inverted-index", "sort"])
def test_a_whole_job_gives_the_same_bytes_with_any_number_of_workers(name: str, tmp_path: Path) -> None:
    source = Path(asyncio.__file__).parent
    made = materialise(tmp_path / "text", 300_000, partitions=5, reducers=3, roots=[source])
    outputs = []
    for workers in (1, 3):
        output = str(tmp_path / f"out{workers}")
        spec = spec_in(tmp_path)._replace(name=name, operation=name, output=output, workers=workers, slots=workers)
        spec.save(tmp_path / "spec.json")
        done = execute_alone(tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert events[0]["stage"] == "ready"
        assert events[-1] == {"stage": "reduce", "done": 3, "of": 3}
        result = JobResult.load(tmp_path / "r")
        assert len(result.works) == 5 * 2 + 3 * 3
        assert result.began <= min(work.asked for work in result.works)
        assert 0 < result.cpu_s < 60
        assert sum(work.input_bytes for work in result.works if work.stage == "map") == 2 * made.size
        files = sorted(Path(spec.output).iterdir())
        assert len(files) == 3
        outputs.append([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])
    assert outputs[0] == outputs[1]


def test_a_job_that_cannot_read_its_input_reports_it_in_a_line(tmp_path: Path) -> None:
    made = materialise(tmp_path / "text", 10_000, partitions=2, reducers=2, roots=[Path(asyncio.__file__).parent])
    Path(made.partitions[0].path).unlink()
    spec = spec_in(tmp_path)
    spec.save(tmp_path / "spec.json")
    done = execute_alone(tmp_path)
    assert done.returncode == 1
    assert "sort: JobError: read of task 0: FileNotFoundError" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_begins_at_its_start_command(tmp_path: Path) -> None:
    materialise(tmp_path / "text", 10_000, partitions=2, reducers=2, roots=[Path(asyncio.__file__).parent])
    spec = spec_in(tmp_path)
    spec.save(tmp_path / "spec.json")
    command = [sys.executable, "-m", "demo.job", str(tmp_path / "spec.json")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["stage"] == "ready"
        assert list((tmp_path / "o").iterdir()) == []
        told = time.monotonic()
        process.communicate("begin\n", timeout=60)
    assert process.returncode == 0
    assert JobResult.load(tmp_path / "r").began >= told


def test_a_job_over_a_part_of_the_text_reads_that_part_alone(tmp_path: Path) -> None:
    made = materialise(tmp_path / "text", 300_000, partitions=8, reducers=4, roots=[Path(asyncio.__file__).parent])
    spec_in(tmp_path, part=0.25).save(tmp_path / "spec.json")
    assert execute_alone(tmp_path).returncode == 0
    works = JobResult.load(tmp_path / "r").works
    assert sum(w.input_bytes for w in works if w.kind == "disk" and w.stage == "map") == made.first(0.25, 2).size
    outputs = [path.read_bytes() for path in sorted((tmp_path / "o").iterdir())]
    assert len(outputs) == 4, "two for each worker, and not the quarter of four ranges"
    lines = [line for part in made.partitions[:2] for line in Path(part.path).read_bytes().splitlines()]
    assert b"".join(outputs).splitlines() == sorted(lines)
