"""A recorded state is decided as the live one was, step by step; and the explanation for a waiting job."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import msgspec
import pytest

from bench.scheduling_round import Size, cluster
from master.core import events as e
from master.core.instructions import SendDecisions
from master.explain import command
from master.explain.recording import Recording, SnapshotError, read, record
from master.explain.replay import explained, text
from master.explain.why import JobExplainer, UnknownJobError
from master.ordering import NAMES
from penstock.model import Capacity
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import MB, Bed, bed, task
from tests.unit.master.cluster_bed import command as run
from tests.unit.master.core.test_core_plan_follower import Plan


@pytest.mark.parametrize("ordering", NAMES)
def test_a_recorded_round_decides_as_the_live_one(ordering: str) -> None:
    live = cluster(Size(6, jobs=4, stages=2, tasks=5), Random(3), ordering)
    live.handle(e.RoundDue(0.0), 0.0)  # so that something is held already, and time goes on
    state = api.JobState(job="late", name="late", user="eve", memory_bytes=0, priority=0.0, submitted_at=2.5)
    live.handle(e.Received("n1", state), 0.2)
    tasks = [task(f"t{i}", 100, nodes=("n1", "n2")) for i in range(3)]
    live.handle(e.Received("n1", api.ReadyTasks(job="late", stage="s", tasks=tasks)), 0.3)
    for index in range(6):
        live.handle(e.Received(f"n{index}", api.Heartbeat(load=live.nodes[f"n{index}"].load, decided=1)), 0.4)
    recorded = read(msgspec.json.encode(record(live, 0.5)), "it")
    said = explained(recorded)
    decided = [
        (decision.job, decision.request.task, sent.node)
        for sent in live.handle(e.RoundDue(0.5), 0.5)
        if isinstance(sent, SendDecisions)
        for decision in sent.decisions
        if isinstance(decision, api.Assign)
    ]
    replayed = [(decision["job"], decision["task"], decision["node"]) for decision in said["decisions"]]
    assert sorted(decided) == sorted(replayed)
    assert replayed, "there was something to decide"
    for decision in said["decisions"]:
        fits = {node: fit for node, fit in decision["fit"].items() if fit is not None}
        assert max(fits.values()) == fits[decision["node"]]
    assert [each["job"] for each in said["order"]] == live.order.rank(0.5).order()
    assert f"Order ({ordering}):" in text(said)


def replayed(b: Bed) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The next round's decisions, as a replay of the state before it makes them and as it makes them."""
    said = explained(read(msgspec.json.encode(record(b.cluster, b.now)), "it"))
    return [(each["task"], each["node"]) for each in said["decisions"]], b.round(after_s=0.0)


def test_promises_and_orders_by_hand_are_replayed() -> None:
    b = bed("a", ordering="fifo", share_chunk_tasks=1)
    b.cluster.guarantees.plan = Plan(2.0)
    for number, (job, reservation) in enumerate({"first": "", "hand": "", "prod": "r"}.items()):
        b.job("a", job, at=float(number), reservation=reservation)
        b.ready("a", *[run(f"{job}{i}", 150, cores=1.0) for i in range(3)], job=job)
    b.serve(e.OrderRequested(("hand",), "root", of_all=True))
    of_replay, live = replayed(b)
    assert of_replay == live == [(task, "a") for task in ("prod0", "prod1", "hand0", "hand1")]


def test_jobs_with_a_later_reservation_are_replayed_last() -> None:
    b = bed("a", ordering="fifo")
    b.cluster.guarantees.plan = Plan(2.0, begins=99.0)
    for job, reservation in (("early", "r"), ("other", "")):
        b.job("a", job, reservation=reservation)
        b.ready("a", run(job, 600), job=job)
    of_replay, live = replayed(b)
    assert of_replay == live == [("other", "a")]


def test_commands_of_unknown_size_hold_their_slot_in_a_replay() -> None:
    b = bed("a", ordering="drf", share_chunk_tasks=1)
    for job, memory in (("large", 260), ("small", 10)):
        b.job("a", job)
        b.ready("a", *[run(f"{job}{i}", memory, cpu=0.0) for i in range(3)], job=job)
    of_replay, live = replayed(b)
    assert of_replay == live
    assert [task for task, _ in live][:4] == ["large0", "small0", "small1", "large1"], "by cores, not by memory"


def test_peaks_are_replayed_with_the_cores_of_a_node_not_its_slots() -> None:
    b = Bed(placement="capacity", ordering="fifo")
    b.node("a", capacity=Capacity(cores=2.5, memory_bytes=1000 * MB))
    b.job("a")
    b.ready("a", run("t", 10, cores=1.0))
    (decision,) = explained(record(b.cluster, b.now))["decisions"]
    assert decision["fit"] == {"a": 2.0}, "all its cores and all its memory are free"


def snapshot(tmp_path: Path, **change: object) -> Path:
    live = cluster(Size(2, jobs=1, stages=1, tasks=3), Random(1))
    values = msgspec.to_builtins(record(live, 0.0)) | change
    path = tmp_path / "state.json"
    path.write_text(json.dumps(values))
    return path


def test_the_command_explains_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = snapshot(tmp_path)
    assert command.main([str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Order (ejf):\n  1. j0 j0: ejf: W·T")
    assert "Stage s0 of j0: score" in said
    assert "1. 0-0 → n" in said
    assert command.main([str(path), "--json"]) == 0
    decisions = json.loads(capsys.readouterr().out)["decisions"]
    assert [decision["task"] for decision in decisions] == ["0-0", "0-1", "0-2"]
    assert set(decisions[0]["fit"]) == {"n0", "n1"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": [{"name": "x"}]}, "state.json: nodes[0]: the key 'rates' is missing"),
        ({"ndoes": []}, "state.json: the snapshot: there is no key 'ndoes'"),
        ({"settings": {"ordering": "best"}}, "state.json: settings.ordering: 'best' is unknown; one of drf, ejf, fair"),
        ({"settings": {"ept_s": 0.01}}, "state.json: settings: ept_s: 0.01 is below interval_s"),
        ({"penstock_snapshot": 9}, "state.json: penstock_snapshot: 9 is not 2"),
        ({"jobs": [{"job": "j"}, {"job": "j"}]}, "state.json: jobs: 'j' is listed twice"),
        (
            {"jobs": [{"job": "j", "stages": {"s": [{"task": "t", "work": [1, 0, 0], "nodes": ["x"]}]}}]},
            "state.json: job j, stage s, task t: no node 'x'",
        ),
    ],
)
def test_a_snapshot_at_fault_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], said: str
) -> None:
    assert command.main([str(snapshot(tmp_path, **change))]) == 2
    error = capsys.readouterr().err
    assert error.startswith("penstock place: ")
    assert said in error
    assert error.count("\n") == 1


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="it is empty, or its end is missing; GET /snapshot of a master makes one"):
        read(b"{", "x")
    assert command.main([str(tmp_path / "missing")]) == 2


def test_a_state_without_anything_is_explained() -> None:
    said = explained(Recording(at=0.0, capacity=(1.0, 1.0, 1.0, 1.0), nodes=[], jobs=[]))
    assert said["decisions"] == []
    assert text(said) == "Order (gittins): no job"


def test_the_explanation_of_a_waiting_job_has_its_place_and_the_resources_that_it_lacks() -> None:
    b = bed("a", "b", ordering="fifo")
    b.job("a", "first", at=1.0)
    b.job("a", "second", at=2.0)
    b.ready("a", *[task(f"t{i}", 700) for i in range(4)], job="first")
    b.ready("a", task("u", 700), job="second")
    assert len(b.round()) == 2
    said = JobExplainer.of(b.cluster).document("second", b.now)
    assert (said.place, said.of, said.before_it) == (2, 2, ["first"])
    assert said.why.startswith("fifo: 2 of 2")
    assert msgspec.to_builtins(said.stages) == [
        {
            "stage": "s", "opportunistic": False, "ready": 1, "waits": "task u: of 2 nodes 2 lack memory",
            "lacks": {"memory": 2},
        }
    ]  # fmt: skip
    assert said.nodes == 2


def test_the_explanation_names_a_wait_for_admission_and_unknown_jobs() -> None:
    b = bed("a")
    b.job("a", "first", 900 * MB, at=1.0)
    b.job("a", "second", 900 * MB, at=2.0)
    said = JobExplainer.of(b.cluster).document("second", b.now)
    assert not said.admitted
    assert "it wants 858 MiB reserved" in said.waits
    with pytest.raises(UnknownJobError, match="no job 'third'; known jobs: first, second"):
        JobExplainer.of(b.cluster).document("third", b.now)
    with pytest.raises(UnknownJobError, match=r"no job 'third'; known jobs: none$"):
        JobExplainer.of(bed("a").cluster).document("third", b.now)
