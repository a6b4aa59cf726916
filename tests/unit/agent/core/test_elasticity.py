"""Limits that move: resized on request, following a profile, promoted in place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent.core import events as e
from agent.core import instructions as i
from agent.core.confinement import Confinement
from agent.core.floors import refused_tasks
from penstock.model import ContainerSpec, KindAmounts, Limits, Profile, TaskRequest
from penstock.model.floors import limits_too_small
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch, Resize
from penstock.wire.errors import RpcError
from tests.fakes.node_bed import NodeBed

MB = 1 << 20


class Bed(NodeBed):
    """A node with one container that runs."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(memory_bytes=1 << 30, has_master=False, link_bytes_per_s=10_000)
        self.now = 100.0
        self.open()
        self.open(2, "bob")
        self.container = self.launch(**spec)
        self.begin(self.container, 42)

    def confinements(self, event: e.Event) -> list[Confinement]:
        return confined(self.handle(event))

    def resize(self, session: int = 1, **limits: float | str | None) -> list[Confinement]:
        return self.confinements(e.Requested(m.RESIZE, session, Resize(container=self.container, limits=limits)))

    def follow(self, profile: Profile | None) -> list[i.Instruction]:
        return self.handle(e.FollowRequested(1, self.container, profile, 0.0))


def confined(told: list[i.Instruction]) -> list[Confinement]:
    return [one.confinement for one in told if isinstance(one, i.Confine)]


def test_limits_that_are_not_named_stay() -> None:
    bed = Bed(limits=Limits(cpu_cores=1.0, memory_max_bytes=64 * MB))
    (told,) = bed.resize(cpu_cores=2.0)
    assert (told.cpu_cores, told.memory_max_bytes) == (2.0, 64 * MB)
    (told,) = bed.resize(memory_max_bytes=None)
    assert (told.cpu_cores, told.memory_max_bytes) == (2.0, None)


def test_the_kernel_gets_nothing_when_nothing_changes() -> None:
    bed = Bed(limits=Limits(cpu_cores=1.0))
    assert bed.resize(cpu_cores=1.0) == []


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"cpu_cors": 1.0}, "cpu_cors"),
        ({"cpu_cores": -1.0}, "cpu_cores"),
        ({"memory_max_bytes": "much"}, "memory_max_bytes"),
    ],
)
def test_nonsense_is_refused_and_named(bed: Bed, limits: dict[str, int | float | str | None], says: str) -> None:
    with pytest.raises(RpcError, match=says):
        bed.resize(**limits)
    assert bed.node.containers.live[bed.container].limits == Limits()


def test_others_containers_are_out_of_reach(bed: Bed) -> None:
    with pytest.raises(RpcError, match="belongs to eve"):
        bed.resize(2, cpu_cores=1.0)


def test_an_ended_container_has_no_limits(bed: Bed) -> None:
    bed.handle(e.ContainerExited(bed.container, 0, None, 0.0, 0, 0, 0.0))
    with pytest.raises(RpcError, match="has ended"):
        bed.resize(cpu_cores=1.0)


def test_a_profile_is_followed_slot_by_slot() -> None:
    bed = Bed(limits=Limits(pids_max=9))
    profile = Profile(slot_s=3.0, cpu_cores=(1.0, 2.0), memory_bytes=(64 * MB, 64 * MB, 32 * MB))
    told = bed.follow(profile)
    (first,) = confined(told)
    assert (first.cpu_cores, first.memory_max_bytes, first.pids_max) == (1.0, 64 * MB, 9)
    assert i.Wake(102.7) in told  # ahead of a rise
    bed.now = 102.7
    told = bed.handle(e.Woken(0.0))
    assert [one.cpu_cores for one in confined(told)] == [2.0]
    for wake in (103.3, 105.7, 106.3):
        assert i.Wake(pytest.approx(wake)) in told
        bed.now = wake + 0.01
        told = bed.handle(e.Woken(0.0))
        assert [one.memory_max_bytes for one in confined(told)] == ([32 * MB] if wake == 106.3 else [])  # after a fall
    assert not [one for one in told if isinstance(one, i.Wake)]  # its last value stays
    assert bed.node.containers.live[bed.container].limits.cpu_cores == 2.0


def test_a_slot_that_is_like_the_one_before_is_not_written(bed: Bed) -> None:
    bed.follow(Profile(slot_s=1.0, cpu_cores=(1.0, 1.0, 2.0)))
    bed.now += 1.0
    assert bed.confinements(e.Woken(0.0)) == []
    bed.now += 1.0
    assert [told.cpu_cores for told in bed.confinements(e.Woken(0.0))] == [2.0]


def test_all_four_resources_follow() -> None:
    bed = Bed(limits=Limits(memory_high_bytes=MB))
    told = bed.follow(
        Profile(cpu_cores=(1.5,), memory_bytes=(5 * MB,), disk_bytes_per_s=(7000,), network_bytes_per_s=(9000,))
    )
    (confinement,) = confined(told)
    assert confinement == Confinement(
        cpu_cores=1.5, cpu_weight=380, memory_high_bytes=5 * MB, disk_read_bytes_per_s=7000,
        disk_write_bytes_per_s=7000, network_egress_bytes_per_s=9000, disk_weight=1000,
    )  # fmt: skip


def test_a_container_that_follows_a_profile_is_not_resized_until_it_stops_following() -> None:
    bed = Bed(limits=Limits(cpu_cores=3.0))
    bed.follow(Profile(cpu_cores=(1.0, 2.0)))
    with pytest.raises(RpcError, match=r"follows a profile .*`penstock follow CONTAINER none`"):
        bed.resize(cpu_cores=2.0)
    assert confined(bed.follow(None)) == []  # they stay as they are
    assert bed.node.containers.live[bed.container].limits.cpu_cores == 1.0
    assert bed.resize(cpu_cores=2.0)[0].cpu_cores == 2.0


def test_a_restarted_agent_follows_on_where_the_profile_is(bed: Bed) -> None:
    profile = Profile(slot_s=10.0, cpu_cores=(1.0, 2.0, 3.0))
    bed.handle(e.FollowRequested(1, bed.container, profile, bed.wall_s))
    bed.restart(bed.container, after_s=12.0, now=5.0)  # another boot's clock
    assert [one.cpu_cores for one in confined(bed.done)] == [2.0]
    assert i.Wake(12.7) in bed.done


def test_a_promise_is_protected_and_slack_is_not() -> None:
    promise = {"cpu_cores": 1.5, "memory_bytes": 64 * MB, "network_bytes_per_s": 1000}
    (told,) = Bed(**promise, limits=Limits(cpu_cores=1.5)).resize(pids_max=5)
    assert (told.cpu_weight, told.memory_low_bytes, told.network_rate_bytes_per_s) == (150, 64 * MB, 1000)
    (told,) = Bed(opportunistic=True, **promise).resize(pids_max=5)
    assert (told.opportunistic, told.memory_low_bytes, told.network_rate_bytes_per_s) == (True, 0, 0)
    assert told.disk_weight == 1


@pytest.mark.parametrize(
    ("limit", "value", "says"),
    [
        ("memory_max_bytes", 1, "1 B is too little to run with .*ask for at least 1 MiB"),
        ("memory_high_bytes", 1000, "memory_high_bytes.*1000 B is too little"),
        ("cpu_cores", 1e-9, "1e-09 cores is too little to run with .*ask for at least 0.01 cores"),
        ("network_egress_bytes_per_s", 1, "1 B/s is too little"),
        ("network_ingress_bytes_per_s", 999, "too little"),
        ("disk_read_bytes_per_s", 1, "too little"),
        ("disk_write_bytes_per_s", 1, "too little"),
    ],
)
def test_a_limit_that_nothing_runs_under_is_refused_at_every_door(limit: str, value: float, says: str) -> None:
    bed = Bed(limits=Limits(cpu_cores=1.0))
    with pytest.raises(RpcError, match=says):
        bed.resize(**{limit: value})
    assert bed.node.containers.live[bed.container].limits == Limits(cpu_cores=1.0)
    limits = msgspec.convert({limit: value}, Limits)
    with pytest.raises(RpcError, match="too little"):
        bed.handle(e.Requested(m.LAUNCH, 1, Launch(container=ContainerSpec(argv=("x",), limits=limits))))
    with pytest.raises(RpcError, match="too little"):
        bed.handle(e.AdoptRequested(1, ContainerSpec(argv=("x",), limits=limits), 77, True))


@pytest.mark.parametrize(
    ("cpus", "says"),
    [
        ("5-2", "'5-2' ends before it begins .*write 2-5"),
        ("3\n", "is not a list of processors .*write for example 0-3,8"),
        ("0-8192", "'0-8192' is beyond the last processor .*up to 8191"),
        ("0," + "9" * 5000, "is beyond the last processor"),
        (",".join(["0-8191"] * 1000), "more than 8192 processors, some of them twice .*name each once"),
        ("0," * 1_000_000 + "0", "at most 40960"),
    ],
)
def test_processors_that_no_host_has_are_refused_at_every_door_without_listing_them(cpus: str, says: str) -> None:
    bed = Bed(limits=Limits(cpus="0-1,3"))
    with pytest.raises(RpcError, match=says):
        bed.resize(cpus=cpus)
    assert bed.node.containers.live[bed.container].limits == Limits(cpus="0-1,3")
    spec = ContainerSpec(argv=("x",), limits=Limits(cpus=cpus))
    with pytest.raises(RpcError, match=says):
        bed.handle(e.Requested(m.LAUNCH, 1, Launch(container=spec)))
    with pytest.raises(RpcError, match=says):
        bed.handle(e.AdoptRequested(1, spec, 77, True))
    task = TaskRequest(task="t", usage=KindAmounts(), command=spec)
    for recovered in (False, True):
        with pytest.raises(RpcError, match=says):
            raise refused_tasks([task], known=(), recovered=recovered)["t"]


def test_a_changed_list_of_processors_that_is_too_long_has_a_remedy_and_an_unknown_limit_its_name() -> None:
    bed = Bed()
    with pytest.raises(RpcError, match=r"^limits\.cpus: .* is too long \(write at most 40960, for example 0-3,8\)$"):
        bed.resize(cpus="0," * 20_480 + "0")
    with pytest.raises(RpcError, match="there is no key 'memory_bytes'"):
        bed.resize(memory_bytes=1)


def test_a_profile_whose_lowest_value_is_too_low_is_refused_and_not_followed(bed: Bed) -> None:
    for profile in (
        Profile(memory_bytes=(64 * MB, 1)),
        Profile(cpu_cores=(1.0, 0.001)),
        Profile(disk_bytes_per_s=(1,)),
    ):
        with pytest.raises(RpcError, match="too little"):
            bed.follow(profile)
    assert bed.node.containers.live[bed.container].profile is None


@pytest.mark.parametrize("resource", ["cpu_cores", "memory_bytes"])
def test_a_profile_with_more_slots_than_an_agent_has_time_for_is_refused(bed: Bed, resource: str) -> None:
    value = 64 * MB if resource == "memory_bytes" else 1
    with pytest.raises(RpcError, match=rf"{resource}.*32769 slots are too many.*at most 32768, with a longer slot_s"):
        bed.follow(Profile(**{resource: (value,) * 32_769}))
    assert bed.node.containers.live[bed.container].profile is None
    bed.follow(Profile(**{resource: (value,) * 28_800}))
    assert bed.node.containers.live[bed.container].profile is not None


def test_a_profile_that_is_taken_up_again_goes_on_in_its_slot(bed: Bed) -> None:
    profile = Profile(slot_s=10, cpu_cores=(1.0, 2.0, 3.0))
    again = e.FollowRequested(1, bed.container, profile, 0.0, since_s=15.0)
    [told] = bed.confinements(again)
    assert told.cpu_cores == 2.0


def test_the_wire_reads_all_processors_of_the_largest_host_and_no_longer_list() -> None:
    every = ",".join(map(str, range(8192)))
    assert list(limits_too_small(msgspec.convert({"cpus": every}, Limits))) == []
    with pytest.raises(msgspec.ValidationError, match="length <= 40960"):
        msgspec.convert({"cpus": "0," * 20_480 + "0"}, Limits)
