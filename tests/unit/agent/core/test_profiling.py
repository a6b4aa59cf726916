"""A container's use, slot by slot."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.profiling import Recording
from agent.core.snapshot import ContainerUse

MB = 2**20


def use(cores: float, memory_bytes: int = MB) -> ContainerUse:
    return ContainerUse(
        cpu_cores=cores, memory_bytes=memory_bytes, disk_bytes_per_s=10 * cores, network_send_bytes_per_s=cores / 2
    )


def means(recording: Recording) -> list[float | None]:
    return [slot.mean[0] if slot is not None else None for slot in recording.slots]


def test_a_slot_has_the_mean_and_the_peak_of_its_samples() -> None:
    recording = Recording(began=10.0, slot_s=3.0, most_slots=100)
    for at, cores in ((11.0, 1.0), (12.0, 4.0), (13.0, 1.0), (14.0, 8.0)):
        recording.sampled(use(cores), 1.0, at)
    (slot,) = recording.slots
    assert slot.mean == pytest.approx((2.0, 20.0, 1.0, MB))
    assert slot.peak == pytest.approx((4.0, 40.0, 2.0, MB))


def test_a_sample_over_a_boundary_counts_in_both_for_its_part() -> None:
    recording = Recording(began=0.0, slot_s=3.0, most_slots=100)
    recording.sampled(use(2.0), 2.0, 2.0)
    recording.sampled(use(4.0), 2.0, 4.0)
    recording.sampled(use(1.0), 2.0, 6.0)
    assert [slot.mean[0] for slot in recording.slots] == pytest.approx([8 / 3, 2.0])
    assert [slot.peak[0] for slot in recording.slots] == [4.0, 4.0]


@pytest.mark.parametrize(
    ("began", "slot_s", "samples", "cores", "last_part"),
    [
        (0.5, 1.0, [(2.0, 1.0, 1.0), (4.0, 1.0, 2.0)], [3.0, 4.0], 0.5),
        (0.0, 3.0, [(2.0, 4.0, 4.0)], [2.0, 2.0], 1 / 3),
        (0.0, 3.0, [(2.0, 3.05, 3.05)], [2.0], 1.0),
        (0.0, 3.0, [(2.0, 1.0, 1.5)], [2.0], 0.5),
        (0.0, 3.0, [(2.0, 1.0, 0.1)], [2.0], 0.1 / 3),
        (0.0, 1.0, [(1.0, 1.0, 1.0), (2.0, 1.0, 2.0), (3.0, 1.0, 3.0), (8.0, 0.25, 3.25)], [1.0, 2.0, 3.0, 8.0], 0.25),
    ],
    ids=[
        "use before the beginning does not count", "the last slot is as long as it was", "a moment more is no slot",
        "a moment before the first sample counts as time", "a run that ended at once has a slot",
        "a part at the limit of slots is not put together with the slot before",
    ],
)  # fmt: skip
def test_the_slots_of_a_run_that_has_ended(
    began: float, slot_s: float, samples: list[tuple[float, float, float]], cores: list[float], last_part: float
) -> None:
    """A sample is (cores, its length, its time)."""
    recording = Recording(began=began, slot_s=slot_s, most_slots=4)
    for used, interval_s, at in samples:
        recording.sampled(use(used), interval_s, at)
    recording.ended()
    assert means(recording) == pytest.approx(cores)
    assert (recording.slot_s, recording.last_part) == (slot_s, pytest.approx(last_part))


def test_stages_end_at_the_nearest_boundary_and_rise() -> None:
    recording = Recording(began=0.0, slot_s=2.0, most_slots=100)
    for at in range(1, 10):
        recording.sampled(use(1.0), 1.0, float(at))
        if at in (1, 2, 5, 6):  # two of them in one slot
            recording.stage_ended()
    recording.sampled(use(1.0), 1.0, 10.0)
    recording.ended()
    assert recording.stages == [1, 2, 3, 4, 5]
    assert len(recording.slots) == 5


def test_a_stage_that_ends_with_the_run_is_the_last() -> None:
    recording = Recording(began=0.0, slot_s=2.0, most_slots=100)
    recording.sampled(use(1.0), 4.0, 4.0)
    recording.stage_ended()
    recording.sampled(use(1.0), 2.0, 6.0)
    recording.stage_ended()
    recording.ended()
    assert recording.stages == [2, 3]


def test_a_slot_without_a_sample_is_a_gap_and_not_the_slot_before() -> None:
    recording = Recording(began=0.0, slot_s=3.0, most_slots=100)
    recording.sampled(use(2.0), 4.0, 4.0)
    recording.sampled(use(1.0), 12.0, 16.0, usual_s=1.0)
    recording.sampled(use(1.0), 1.0, 25.0)  # the samples between the two had nothing of it
    recording.ended()
    assert means(recording) == [2.0, pytest.approx(4 / 3), None, None, None, 1.0, None, None, 1.0]
    assert recording.latest is not None and recording.latest.mean[0] == 1.0


def test_two_slots_that_become_one_have_the_mean_of_the_measurements() -> None:
    recording = Recording(began=0.0, slot_s=1.0, most_slots=8)
    for at, cores, interval_s in ((1, 2.0, 1.0), (2, 4.0, 1.0), (3, 6.0, 1.0), (6.5, 1.0, 3.5), (8, 5.0, 1.5)):
        recording.sampled(use(cores), interval_s, float(at))
    assert (recording.slot_s, means(recording)) == (2.0, [3.0, 6.0, None, 4.0])
    assert recording.cpu_seconds == pytest.approx(2 + 4 + 6 + 3.5 + 7.5)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0.05, 7), st.floats(0, 64)), min_size=1, max_size=80),
    st.floats(0.5, 4),
    st.integers(2, 20),
    st.sets(st.integers(0, 79), max_size=10),
)
def test_no_use_is_lost_but_in_a_gap_and_memory_is_bounded(
    samples: list[tuple[float, float]], slot_s: float, most_slots: int, stages: set[int]
) -> None:
    recording = Recording(began=0.0, slot_s=slot_s, most_slots=most_slots)
    at = used = 0.0
    for number, (interval_s, cores) in enumerate(samples):
        at += interval_s
        used += interval_s * cores
        recording.sampled(use(cores), interval_s, at)
        if number in stages:
            recording.stage_ended()
        assert len(recording.slots) <= most_slots
    assert (
        used - 64 * recording.slot_s - 1e-6 <= recording.cpu_seconds <= used + 1e-6
    )  # but for the slot that is not complete
    measured = [slot for slot in recording.slots if slot is not None]
    if max(interval_s for interval_s, _ in samples) <= 2 * slot_s:
        assert len(measured) == len(recording.slots)
        assert sum(slot.mean[0] for slot in measured) * recording.slot_s == pytest.approx(recording.cpu_seconds)
    assert all(mean <= peak + 1e-9 for slot in measured for mean, peak in zip(slot.mean, slot.peak, strict=True))
    before = len(recording.slots)
    recording.ended()
    assert 0 < recording.last_part <= 1
    if len(recording.slots) > before and not stages:
        duration_s = (len(recording.slots) - 1 + recording.last_part) * recording.slot_s
        assert duration_s == pytest.approx(at, abs=1e-3)
    ends = recording.stages
    assert ends == sorted(set(ends))
    assert not ends or ends[-1] == len(recording.slots)
