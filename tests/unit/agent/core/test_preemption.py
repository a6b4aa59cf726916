"""UBIS on the node, by example (§IV.C, the decisions of its implementation in YARN, and work-preserving before
killing).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.confinement import Promise
from agent.core.ledger import compute_ledger
from agent.core.preemption import Act, Action, Preemption, View
from agent.core.records import ContainerRecord, ContainerState
from agent.core.settings import PreemptionSettings, Thresholds, VictimOrder
from agent.core.snapshot import ContainerUse, HostUse, Snapshot
from penstock.model import Capacity, Choice, ContainerSpec, KindAmounts, Limits, Notice

CAPACITY = Capacity(cores=4, memory_bytes=1 << 30)
MB = 1 << 20
SETTINGS = PreemptionSettings(thresholds=Thresholds(memory=0.9, cpu=0.9, disk=0.9, network=0.9), cooldown_s=2.0)


def container(
    name: str, order: int, *, opportunistic: bool, memory: int = 0, cores: float = 0.0, task: str = "",
    state: ContainerState = ContainerState.RUNNING, choice: Choice = Choice.NORMAL, notice: Notice | None = None,
    limits: Limits | None = None, promise: Promise | None = None,
) -> ContainerRecord:  # fmt: skip
    spec = ContainerSpec(
        argv=("x",), memory_bytes=memory, cpu_cores=cores, opportunistic=opportunistic, preempt=choice, notice=notice
    )
    record = ContainerRecord(
        container=name, user="u", spec=spec, opportunistic=opportunistic, order=order, state=state, task=task
    )
    record.resize(limits or Limits())
    record.promise = promise
    return record


class Node:
    """One policy, the containers of a node, and a clock that goes on by a second a sample."""

    def __init__(self, *containers: ContainerRecord, settings: PreemptionSettings = SETTINGS) -> None:
        self.policy = Preemption(settings)
        self.containers = list(containers)
        self.now = 0.0
        self.granted = KindAmounts()

    def view(self, host: HostUse, uses: dict[str, ContainerUse]) -> View:
        snapshot = Snapshot(self.now, 1.0, host, uses)
        return View.of(snapshot, self.containers, compute_ledger(CAPACITY, self.containers, [], snapshot), self.granted)

    def sample(self, host: HostUse | None = None, **uses: ContainerUse) -> list[Action]:
        self.now += 1.0
        return self.carry_out(self.policy.sampled(self.view(host or HostUse(), uses), self.now))

    def memory(self, **used: int) -> list[Action]:
        return self.sample(**{name: ContainerUse(memory_bytes=amount * MB) for name, amount in used.items()})

    def look(self, *pressed: str, **used: int) -> list[Action]:
        uses = {name: ContainerUse(memory_bytes=amount * MB) for name, amount in used.items()}
        return self.carry_out(self.policy.looked(self.view(HostUse(), uses), pressed, self.now))

    def carry_out(self, actions: list[Action]) -> list[Action]:
        states = {
            Act.PAUSE: ContainerState.PAUSED,
            Act.RESUME: ContainerState.RUNNING,
            Act.WARN: ContainerState.WARNED,
            Act.END: ContainerState.STOPPING,
        }
        for action in actions:
            for record in self.containers:
                if record.container == action.container and action.act in states:
                    record.state = states[action.act]
        return actions


def acts(actions: list[Action]) -> list[tuple[str, str]]:
    return [(action.act.value, action.container) for action in actions]


def regular(memory: int = 850, cores: float = 0.0, **more: object) -> ContainerRecord:
    return container("r", 1, opportunistic=False, memory=memory * MB, cores=cores, **more)  # type: ignore[arg-type]


def opportunistic(name: str, order: int, **more: object) -> ContainerRecord:
    return container(name, order, opportunistic=True, **{"memory": 200 * MB, **more})  # type: ignore[arg-type]


def test_a_tick_without_opportunistic_containers_is_one_without_contention() -> None:
    sampled, rested = nodes = [Node(regular(cores=3), opportunistic("o", 2, cores=2)) for _ in range(2)]
    for node in nodes:
        node.sample(r=ContainerUse(cpu_cores=3), o=ContainerUse(cpu_cores=1))
        assert node.policy._breaches["cpu"] == 1
        del node.containers[1:]
    sampled.sample(r=ContainerUse(cpu_cores=4))
    rested.policy.rests()
    assert vars(rested.policy) == vars(sampled.policy)


# ---------------------------------------------------------------- memory


def old_and_new(**new: object) -> list[ContainerRecord]:
    return [regular(), opportunistic("old", 2), opportunistic("new", 3, **new)]


@pytest.mark.parametrize(
    ("containers", "used_mib", "ended"),
    [
        (old_and_new(), {"r": 750, "old": 150, "new": 150}, ["new"]),
        (old_and_new(), {"r": 800, "old": 200, "new": 60}, ["new", "old"]),  # 138 over, new has 60
        (old_and_new(), {"r": 750, "old": 100, "new": 100}, ["new"]),  # 28 over
        (old_and_new(), {"r": 800, "old": 150, "new": 0}, ["old"]),
        (old_and_new(state=ContainerState.STOPPING), {"r": 700, "old": 150, "new": 150}, []),
        ([regular(), opportunistic("o", 2)], {"r": 700, "o": 200}, []),
        ([regular(700), opportunistic("o", 2)], {"r": 950, "o": 10}, []),  # busy with promised work
        ([regular(), container("s", 9, opportunistic=False, memory=200 * MB)], {"r": 900, "s": 300}, []),
        (
            [
                regular(),
                opportunistic("willing", 2, choice=Choice.PREFER),
                opportunistic("mid", 3),
                opportunistic("loath", 4, choice=Choice.AVOID),
            ],
            {"r": 700, "willing": 50, "mid": 150, "loath": 100},
            ["willing", "mid"],
        ),
    ],
    ids=[
        "the newest first", "as many as cover the excess", "and no more", "an empty container frees nothing",
        "the dying count as gone",
        "below the threshold", "nothing is over-allocated", "regular work", "prefer before, avoid after",
    ],
)  # fmt: skip
def test_memory_goes_at_the_first_sample(
    containers: list[ContainerRecord], used_mib: dict[str, int], ended: list[str]
) -> None:
    assert acts(Node(*containers).memory(**used_mib)) == [("preempted", name) for name in ended]


def test_a_look_between_two_samples_is_enough() -> None:
    node = Node(regular(), opportunistic("o", 2))
    assert acts(node.look(r=800, o=150)) == [("preempted", "o")]


def test_page_cache_is_reclaimed_first_if_it_covers_the_demand() -> None:
    node = Node(regular(), opportunistic("o", 2))
    cached = {"r": ContainerUse(memory_bytes=800 * MB), "o": ContainerUse(150 * MB, 150 * MB)}
    cached["o"] = ContainerUse(memory_bytes=150 * MB, memory_cache_bytes=100 * MB)
    (action,) = node.sample(**cached)
    assert (action.act, action.container, action.size_bytes) == (Act.RECLAIM, "o", 100 * MB)
    assert node.sample(**cached) == []  # it is still at it
    node.policy.reclaimed("o")
    assert acts(node.sample(**cached)) == [("preempted", "o")]  # the reclaimed cache was not enough: no second time


def test_too_little_page_cache_is_not_worth_the_delay() -> None:
    node = Node(regular(), opportunistic("o", 2))
    little = ContainerUse(memory_bytes=200 * MB, memory_cache_bytes=10 * MB)
    assert acts(node.sample(r=ContainerUse(memory_bytes=800 * MB), o=little)) == [("preempted", "o")]


def test_a_promise_that_stalls_is_helped_below_the_threshold() -> None:
    node = Node(regular(600), opportunistic("o", 2))
    (action,) = node.look("r", r=500, o=100)
    assert (action.act, action.container) == (Act.END, "o")
    assert "r has 500 MiB of 600 MiB promised" in action.reason


@pytest.mark.parametrize(
    ("stalled", "used"),
    [
        (regular(600), 600),  # it has its promise
        (regular(600, promise=Promise(cpu_cores=1.0, memory_bytes=100 * MB, network_bytes_per_s=0)), 200),  # now
        (regular(600, limits=Limits(memory_max_bytes=500 * MB)), 490),  # it stalls at a limit of its own
        (regular(600, limits=Limits(memory_high_bytes=500 * MB)), 480),
    ],
)
def test_an_executor_that_stalls_by_its_own_doing_costs_others_nothing(stalled: ContainerRecord, used: int) -> None:
    assert Node(stalled, opportunistic("o", 2)).look("r", r=used, o=100) == []


def test_notice_is_given_and_heeded() -> None:
    node = Node(regular(), opportunistic("o", 2, notice=Notice(grace_s=3.0)))
    assert acts(node.memory(r=800, o=150)) == [("warned", "o")]
    assert node.policy.due() == node.now + 3.0
    assert node.memory(r=800, o=150) == []  # it counts as gone
    assert node.policy.woken(node.now) == []
    assert acts(node.policy.woken(node.now + 2.0)) == [("preempted", "o")]
    assert node.policy.due() is None, "its kill may take long, and is told once"
    assert node.policy.woken(node.now + 2.0) == []


def test_a_promise_that_stalls_cuts_the_grace_short() -> None:
    node = Node(regular(), opportunistic("o", 2, notice=Notice(grace_s=30.0)))
    assert acts(node.memory(r=780, o=150)) == [("warned", "o")]
    assert acts(node.look("r", r=780, o=150)) == [("preempted", "o")]
    assert node.look("r", r=780, o=150) == []


def test_no_grace_is_longer_than_the_node_allows() -> None:
    node = Node(regular(), opportunistic("o", 2, notice=Notice(grace_s=200.0)))
    node.memory(r=800, o=150)
    assert node.policy.due() == node.now + SETTINGS.grace_max_s


# ---------------------------------------------------------------- order


@pytest.mark.parametrize(
    ("order", "first"), [(VictimOrder.NEWEST, "c"), (VictimOrder.LEAST_PROGRESS, "b"), (VictimOrder.LARGEST, "a")]
)
def test_the_order_is_the_operators_choice(order: VictimOrder, first: str) -> None:
    three = [opportunistic(name, number) for number, name in enumerate("abc", start=2)]
    node = Node(regular(), *three, settings=replace(SETTINGS, order=order))
    actions = node.sample(
        r=ContainerUse(memory_bytes=800 * MB),
        a=ContainerUse(memory_bytes=80 * MB, cpu_seconds=9.0),
        b=ContainerUse(memory_bytes=50 * MB, cpu_seconds=1.0),
        c=ContainerUse(memory_bytes=40 * MB, cpu_seconds=5.0),
    )
    assert actions[0].container == first


def test_the_reason_has_the_rule_and_the_numbers_and_the_container_that_needed_room() -> None:
    (action,) = Node(regular(), opportunistic("o", 2)).memory(r=800, o=150)
    assert action.resource == "memory"
    assert "950 MiB of 1 GiB" in action.reason and "T_preempt 0.9" in action.reason
    assert "newest opportunistic container goes first" in action.reason
    assert action.candidates.startswith("o 1.57e+08 B")


# ---------------------------------------------------------------- CPU, disk, network


def cores(r: float, o: float) -> dict[str, ContainerUse]:
    return {"r": ContainerUse(cpu_cores=r), "o": ContainerUse(cpu_cores=o)}


def test_cpu_is_paused_at_the_third_breach_in_a_row() -> None:
    node = Node(regular(0, cores=3.0), opportunistic("o", 2, cores=2.0))
    assert node.sample(**cores(2.5, 1.5)) == []
    assert node.sample(**cores(2.5, 1.5)) == []
    assert node.sample(**cores(1.0, 1.0)) == []  # a rest starts the count again
    assert node.sample(**cores(2.5, 1.5)) == []
    assert node.sample(**cores(2.5, 1.5)) == []
    assert acts(node.sample(**cores(2.5, 1.5))) == [("paused", "o")]


def test_a_paused_container_goes_on_when_there_has_been_room_for_a_while() -> None:
    node = Node(regular(0, cores=3.5), opportunistic("o", 2, cores=1.0))
    for _ in range(3):
        node.sample(**cores(2.9, 1.0))
    assert node.containers[1].state is ContainerState.PAUSED
    for _ in range(10):
        assert node.sample(**cores(3.0, 0.0)) == []  # 3 + 1 of 4 would be contention again
    assert node.sample(**cores(1.0, 0.0)) == []
    assert node.sample(**cores(1.0, 0.0)) == []
    assert acts(node.sample(**cores(1.0, 0.0))) == [("resumed", "o")]


def test_between_two_actions_lies_the_cool_down() -> None:
    node = Node(
        regular(0, cores=3.5), opportunistic("o", 2, cores=1.0), settings=replace(SETTINGS, after=1, cooldown_s=10.0)
    )
    assert acts(node.sample(**cores(3.0, 0.9))) == [("paused", "o")]
    resumed = [node.now for _ in range(15) if node.sample(**cores(1.0, 0.0))]
    assert resumed == [11.0]  # not before it has rested
    paused = [node.now for _ in range(15) if node.sample(**cores(3.0, 0.9))]
    assert paused[0] >= 21.0


def test_at_t_preempt_1_nothing_is_paused_for_the_cpu_at_any_measurement() -> None:
    settings = replace(SETTINGS, thresholds=replace(SETTINGS.thresholds, cpu=1.0))
    node = Node(regular(0, cores=3.5), opportunistic("o", 2, cores=1.0), settings=settings)
    assert [node.sample(**cores(3.9, 0.2)) for _ in range(5)] == [[]] * 5


def test_cpu_that_no_other_container_uses_is_no_contention() -> None:
    node = Node(regular(0, cores=3.0), opportunistic("o", 2, cores=2.0))
    for _ in range(10):
        assert node.sample(**cores(0.0, 4.0)) == []


def test_slots_that_frameworks_hold_count_as_allocated_cores() -> None:
    settings = replace(SETTINGS, after=1)
    node = Node(regular(0), opportunistic("o", 2, cores=1.0), settings=settings)
    assert node.sample(**cores(2.9, 0.9)) == []
    node = Node(regular(0), opportunistic("o", 2, cores=1.0), settings=settings)
    node.granted = KindAmounts(cpu=4.0)
    assert acts(node.sample(**cores(2.9, 0.9))) == [("paused", "o")]


def test_the_oldest_goes_on_first_and_one_at_a_time() -> None:
    both = [opportunistic("old", 2, cores=1.0), opportunistic("new", 3, cores=1.0)]
    node = Node(regular(0, cores=3.0), *both, settings=replace(SETTINGS, after=1, cooldown_s=0.0))
    busy = {"r": ContainerUse(cpu_cores=3.9), "old": ContainerUse(cpu_cores=0.2), "new": ContainerUse(cpu_cores=0.2)}
    assert acts(node.sample(**busy)) == [("paused", "new"), ("paused", "old")]
    calm = {"r": ContainerUse(cpu_cores=1.0)}
    assert acts(node.sample(**calm)) == [("resumed", "old")]
    assert acts(node.sample(**calm)) == [("resumed", "new")]


def disk(**bytes_per_s: float) -> dict[str, ContainerUse]:
    return {name: ContainerUse(disk_bytes_per_s=rate) for name, rate in bytes_per_s.items()}


def test_disk_goes_only_where_opportunistic_work_is_in_the_way_of_regular() -> None:
    def node() -> Node:
        return Node(regular(0), opportunistic("o", 2), settings=replace(SETTINGS, after=1))

    busy = HostUse(disk_busy=1.0)
    assert acts(node().sample(busy, **disk(r=100, o=50))) == [("paused", "o")]
    assert node().sample(busy, **disk(r=100, o=0)) == []  # it has no part in it
    assert node().sample(busy, **disk(r=0, o=50)) == []  # no other container wants it
    assert node().sample(HostUse(disk_busy=None), **disk(r=100, o=50)) == []
    somebody_else = HostUse(disk_busy=1.0, disk_read_bytes_per_s=1e9)
    assert node().sample(somebody_else, **disk(r=100, o=50)) == []  # neither of ours makes it busy


def test_network_likewise() -> None:
    node = Node(regular(0), opportunistic("o", 2), settings=replace(SETTINGS, after=1))
    busy = HostUse(network_busy=0.99, network_send_bytes_per_s=200.0)
    both = {"r": ContainerUse(network_send_bytes_per_s=150.0), "o": ContainerUse(network_receive_bytes_per_s=50.0)}
    assert acts(node.sample(busy, **both)) == [("paused", "o")]


# ---------------------------------------------------------------- starved


def test_the_masters_work_that_cannot_get_on_is_handed_back() -> None:
    settings = replace(SETTINGS, after=1, starved_after_s=5.0)
    placed, launched = opportunistic("placed", 2, cores=1.0, task="t"), opportunistic("own", 3, cores=1.0)
    node = Node(regular(0, cores=4.0), placed, launched, settings=settings)
    busy = {
        "r": ContainerUse(cpu_cores=3.9),
        "placed": ContainerUse(cpu_cores=0.01, cpu_stalled=0.99),
        "own": ContainerUse(cpu_cores=0.01, cpu_stalled=0.99),
    }
    seen = [action for _ in range(12) for action in node.sample(**busy)]
    assert acts(seen)[-1] == ("preempted", "placed")
    assert "handed back to the master" in seen[-1].reason
    assert launched.state is ContainerState.PAUSED  # it has nowhere else to go


def test_a_container_that_makes_progress_is_not_starved() -> None:
    settings = replace(SETTINGS, starved_after_s=3.0)
    node = Node(opportunistic("placed", 2, task="t"), settings=settings)
    for _ in range(10):
        assert node.sample(placed=ContainerUse(cpu_cores=0.5, cpu_stalled=0.99)) == []


def test_a_dry_run_reports_the_same_and_not_at_every_look() -> None:
    node = Node(regular(), opportunistic("o", 2), settings=replace(SETTINGS, dry_run=True, cooldown_s=10.0))
    uses = {"r": ContainerUse(memory_bytes=800 * MB), "o": ContainerUse(memory_bytes=150 * MB)}
    view = node.view(HostUse(), uses)
    said = [acts(node.policy.sampled(view, float(second))) for second in range(20)]
    assert said.count([("preempted", "o")]) == 2
    assert said.count([]) == 18
