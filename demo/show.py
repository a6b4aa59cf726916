"""The demonstration from beginning to end: text, Penstock, the runs, the comparison, the report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from demo import node, report
from demo.corpus import SOURCES, Corpus, materialise
from demo.picture import draw
from demo.plan import PLANNED_JOBS, Plan
from demo.progress import Progress
from demo.records import BESIDE, EXECUTORS
from demo.run import Run, Runner
from penstock.client import AgentClient
from penstock.model.units import counted, format_bytes

PROJECT = Path(__file__).resolve().parent.parent
DEFAULT_MEGABYTES = 120
_MEGABYTE = 1_000_000
#: Of the memory that is available, how much we take at most.
_MEMORY_SHARE = 0.8


class ShowFailed(Exception):  # noqa: N818 - named for the reader of the message
    """One line: why there is nothing to show."""


class Options(NamedTuple):
    """The options; ``megabytes`` None: a size that suits the machine."""

    source: Path | None
    megabytes: int | None
    out: Path
    http: str = "127.0.0.1:0"
    keep: bool = False
    commit: str = ""
    machine: str = ""


def show(options: Options) -> int:
    """Everything. The exit status: 0, or 1 when the outputs differ or nothing was preempted.

    Raises:
        ShowFailed, CorpusError, NodeFailed, OSError: one line each.
        KeyboardInterrupt: everything is stopped and removed by then.
    """
    began = time.monotonic()
    progress = Progress()
    with work_directory(options) as directory:
        plan, corpus = prepared(options, directory, progress)
        plan, runs, more = _all(plan, options, progress)
        printed = list(_conclusion(plan, runs, more))
        more |= {"input_bytes": corpus.size, "printed": printed, "date": datetime.now(UTC).date().isoformat()}
        more |= {"commit": options.commit, "machine": options.machine}
        _write(options.out, plan, runs, more)
    for line in ("", *printed):
        progress.line(line)
    progress.line(_pictured(options.out))
    progress.line(f"everything: {options.out / 'report.json'}; the demo took {time.monotonic() - began:.0f} s")
    return 1 if more["differences"] or not runs[BESIDE].preemptions else 0


def prepared(options: Options, directory: Path, progress: Progress) -> tuple[Plan, Corpus]:
    """Make the plan for this machine, and write its text.

    Raises:
        ShowFailed, CorpusError: one line each.
    """
    plan = make_plan(options, directory)
    progress.line(_introduction(plan))
    progress.phase("writing the text")
    corpus = materialise(
        plan.text,
        plan.text_bytes,
        partitions=plan.partitions,
        reducers=plan.reducers,
        roots=[options.source] if options.source is not None else SOURCES,
        progress=lambda written: progress.update(min(1.0, written / plan.text_bytes)),
    )
    progress.done()
    progress.line(
        f"{corpus.size / _MEGABYTE:.0f} MB of {counted(len(corpus.names), 'file')} in "
        f"{counted(len(corpus.partitions), 'part')}"
    )
    return replace(plan, partitions=len(corpus.partitions)), corpus


@contextlib.contextmanager
def work_directory(options: Options) -> Iterator[Path]:
    """Beside the report, because /tmp may be memory and the demo wants a disk.

    Raises:
        ShowFailed: nothing can be written there.
    """
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix="work-", dir=options.out.resolve()))
    except OSError as error:
        raise ShowFailed(f"--out: {options.out}: {error.strerror}; name a directory that can be written") from None
    try:
        yield directory
    finally:
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)


def make_plan(options: Options, directory: Path) -> Plan:
    """Sizes for this machine.

    Raises:
        ShowFailed: not enough memory for the requested size.
    """
    cores = float(len(os.sched_getaffinity(0)))
    budget = int(psutil.virtual_memory().available * _MEMORY_SHARE)
    for megabytes in [options.megabytes] if options.megabytes else range(DEFAULT_MEGABYTES, 0, -10):
        plan = Plan.of(directory, PROJECT, megabytes * _MEGABYTE, cores)
        if plan.needed_bytes <= budget:
            return plan
    raise ShowFailed(
        f"{format_bytes(plan.needed_bytes)} of memory wanted, {format_bytes(budget)} may be taken; "
        "free some or ask for less text with --megabytes"
    )


def _all(plan: Plan, options: Options, progress: Progress) -> tuple[Plan, dict[str, Run], dict[str, Any]]:
    """All runs on one Penstock."""
    agent = {**plan.agent_settings, "http": options.http}
    progress.phase("starting agent and master")
    # Sockets have short paths only, so they live in the system's directory for temporary files.
    with (
        tempfile.TemporaryDirectory(prefix="penstock-demo-") as private,
        node.running(Path(private), agent, plan.master_settings) as up,
    ):
        return asyncio.run(_runs(plan, up, progress, keep=options.keep))


async def _runs(
    plan: Plan, up: node.Node, progress: Progress, *, keep: bool
) -> tuple[Plan, dict[str, Run], dict[str, Any]]:
    async with await AgentClient.connect(up.socket, client="demo") as agent:
        await linked(agent)
        progress.done()
        enforced = agent.welcome.enforced
        plan = replace(
            plan,
            socket=up.socket,
            cpu_max_enforced="cpu" in enforced,
            idle_class_enforced="opportunistic" in enforced,
        )
        progress.line(f"status while it lasts: http://{up.http}/status (also /metrics)")
        runs, own, digests = {}, {}, {}
        for executor in EXECUTORS:
            await asyncio.to_thread(even_out, plan)
            progress.phase(f"{executor}: {len(PLANNED_JOBS)} jobs")
            before = up.cpu_seconds()
            runs[executor] = await Runner(agent, plan, executor, progress.update).run()
            own[executor] = {name: used - before[name] for name, used in up.cpu_seconds().items()}
            progress.done()
            digests[executor] = await asyncio.to_thread(_digests, plan, executor, keep=keep)
    differing = {
        f"{executor}: {line}"
        for executor in EXECUTORS[1:]
        for line in report.differences(digests[EXECUTORS[0]], digests[executor])
    }
    return plan, runs, {"enforced": enforced, "penstock_cpu_seconds": own, "differences": sorted(differing)}


def even_out(plan: Plan) -> None:
    """Have each run begin alike: nothing waits to be written any longer, and all of the text was just read."""
    os.sync()
    for path in sorted(plan.text.glob("part-*")):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


async def linked(agent: AgentClient) -> None:
    """Until the agent has found its master: jobs wait for it anyway, but their time shall not be spent on that."""
    async with asyncio.timeout(node.START_TIMEOUT_S):
        while not (await agent.status())["master"]["linked"]:  # noqa: ASYNC110 - it is another process that we ask
            await asyncio.sleep(0.05)


def _digests(plan: Plan, executor: str, *, keep: bool) -> dict[str, str]:
    """Digest the output of a run, and remove it: the next one shall find as much memory and disk."""
    outputs = [plan.output(executor, planned.name) for planned in PLANNED_JOBS]
    found = report.digests(outputs)
    if not keep:
        for output in outputs:
            shutil.rmtree(output)
    return found


# ---------------------------------------------------------------- messages


def _introduction(plan: Plan) -> str:
    return (
        f"{len(PLANNED_JOBS)} jobs at once on {counted(plan.cores, 'core')}: "
        f"{', '.join(job.name for job in PLANNED_JOBS)} of {plan.text_bytes / _MEGABYTE:.0f} MB; "
        f"for all of it {counted(plan.partitions, 'map task')}, {counted(plan.reducers, 'reduce task')}, "
        f"{counted(plan.workers, 'worker')}"
    )


def _conclusion(plan: Plan, runs: dict[str, Run], more: dict[str, Any]) -> Iterator[str]:
    yield from report.table(runs, plan, more["penstock_cpu_seconds"])
    yield ""
    yield "plain Linux: all jobs at once, without Penstock; the runs were in the table's order"
    if plan.cpu_max_enforced:
        yield f"static: each user has {plan.share:.2f} cores by cpu.max; a user's jobs run one after the other"
    else:
        yield (
            f"static: cpu.max is not enforced on this host, so a user's share of {plan.share:.2f} cores is the cores "
            "that the user's jobs may run on, one after the other; users that share one may take what the other leaves"
        )
    yield "Penstock: as installed; first it knows what the jobs report, then also how long those of the same name took"
    used = more["penstock_cpu_seconds"]["penstock"]
    parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in used.items())
    yield f"CPU time of Penstock itself, the second time: {sum(used.values()):.2f} s ({parts})"
    yield "with archive: Penstock again, beside an opportunistic archive and a table in memory; other runs have neither"
    yield from report.preemption_lines(runs[BESIDE])
    if not runs[BESIDE].preemptions:
        yield "FAILED: nothing was preempted, although memory was wanted"
    if differing := more["differences"]:
        yield f"FAILED: {counted(len(differing), 'output file', 'differ')} from those of plain Linux:"
        yield from differing
    else:
        yield "all runs wrote the same bytes in every output file"


def _write(out: Path, plan: Plan, runs: dict[str, Run], more: dict[str, Any]) -> None:
    (out / "report.json").write_text(json.dumps(report.document(runs, plan, more), indent=1), encoding="utf-8")
    (out / "timeline.json").write_text(json.dumps(report.timeline(runs)), encoding="utf-8")


def _pictured(out: Path) -> str:
    """Draw, where that is possible."""
    source, picture = out / "timeline.json", out / "timeline.png"
    try:
        draw(json.loads(source.read_text(encoding="utf-8")), picture)
    except ImportError:
        return f"timeline: {source} (matplotlib is not here; python -m demo.picture {source} {picture} draws it)"
    return f"timeline: {picture}"
