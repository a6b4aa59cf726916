"""The cores of a reservation on a node: promised from the time that it has reserved, and not before."""

from __future__ import annotations

import pytest

from agent.core import events as e
from agent.core.confinement import WEIGHT_PER_CORE
from agent.core.rank_weights import nice_of, unpromised_weight
from penstock.model import Limits
from penstock.wire.master_api import Decided, SetPriority
from tests.unit.agent.core.ranks_bed import Bed


def send_priorities(bed: Bed, *decisions: SetPriority) -> None:
    assert bed.send(e.Decided(1, list(decisions), 0.0)) == Decided(refused=[])


def weight(bed: Bed, container: str) -> int:
    """Return its ``cpu.weight``, if it has changed since the start."""
    settings = bed.node.containers.live[container].confine().confinement
    assert bed.weights[container] in {0, settings.cpu_weight}
    return settings.cpu_weight


def stated(cores: float) -> dict[str, object]:
    """Return the spec of a command with ``--cpu``: so many cores, and no more."""
    return {"cpu_cores": cores, "limits": Limits(cpu_cores=cores)}


def two_jobs(bed: Bed, **spec: object) -> tuple[str, str, str, str]:
    """A best-effort container and a container of a reservation, each with its job."""
    best, reserved = bed.launch(), bed.launch(**spec)
    return best, reserved, bed.register(bed.connect(best)), bed.register(bed.connect(reserved))


@pytest.fixture
def bed() -> Bed:
    return Bed(has_master=True)


def test_a_job_has_its_reserved_core_in_its_time_wherever_the_order_puts_it(bed: Bed) -> None:
    best, reserved, first, last = two_jobs(bed)
    send_priorities(bed, SetPriority(job=first, priority=2.0), SetPriority(job=last, priority=1.0, reserved_cores=0.0))
    assert bed.order() == [best, reserved]
    assert weight(bed, reserved) < WEIGHT_PER_CORE / 5
    send_priorities(bed, SetPriority(job=last, priority=1.0, reserved_cores=1.0))
    assert weight(bed, reserved) >= WEIGHT_PER_CORE, "a core, and the part of its rank"
    assert weight(bed, best) + weight(bed, reserved) == unpromised_weight(2.0, 1.0) + WEIGHT_PER_CORE
    assert bed.nice[reserved] == nice_of(0, 2), "where no cpu controller weighs containers, as the first"
    send_priorities(bed, SetPriority(job=last, priority=1.0, reserved_cores=0.0))
    assert weight(bed, reserved) < WEIGHT_PER_CORE / 5, "its time is over"


def test_before_its_time_it_stays_the_last_with_the_next_agent_while_the_master_is_away(bed: Bed) -> None:
    best, reserved, first, last = two_jobs(bed, **stated(1.0))
    send_priorities(bed, SetPriority(job=first, priority=2.0), SetPriority(job=last, priority=1.0, reserved_cores=0.0))
    bed.restart(best, reserved)
    assert bed.node.jobs[last].record.reserved_cores == 0.0
    assert bed.node.jobs[first].record.reserved_cores is None


def test_the_cores_that_a_command_states_are_promised_from_its_reservation_s_time_on(bed: Bed) -> None:
    best, reserved, first, last = two_jobs(bed, **stated(1.0))
    assert weight(bed, reserved) == WEIGHT_PER_CORE
    send_priorities(bed, SetPriority(job=first, priority=2.0), SetPriority(job=last, priority=1.0, reserved_cores=0.0))
    assert weight(bed, reserved) < WEIGHT_PER_CORE / 5
    assert weight(bed, best) > unpromised_weight(2.0, 0.0) * 0.9, "no core is kept for it"
    assert bed.nice[reserved] == nice_of(1, 2)
    send_priorities(bed, SetPriority(job=last, priority=1.0, reserved_cores=1.0))
    assert weight(bed, reserved) == WEIGHT_PER_CORE
    assert weight(bed, best) == unpromised_weight(2.0, 1.0)
    assert bed.nice[reserved] == nice_of(0, 1)


def test_the_stated_cores_of_its_commands_are_part_of_the_reservation(bed: Bed) -> None:
    _, stating, first, reserved = two_jobs(bed, **stated(0.5))
    other = bed.launch()
    bed.register(bed.connect(other), job=reserved)
    send_priorities(
        bed, SetPriority(job=first, priority=2.0), SetPriority(job=reserved, priority=1.0, reserved_cores=1.0)
    )
    assert weight(bed, stating) == WEIGHT_PER_CORE // 2
    assert WEIGHT_PER_CORE // 2 <= weight(bed, other) < WEIGHT_PER_CORE


def test_a_job_without_a_reservation_keeps_the_stated_cores_of_its_commands(bed: Bed) -> None:
    _, stating, first, second = two_jobs(bed, **stated(1.0))
    send_priorities(bed, SetPriority(job=first, priority=2.0), SetPriority(job=second, priority=1.0))
    assert weight(bed, stating) == WEIGHT_PER_CORE
