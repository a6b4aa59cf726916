"""Random agents that come and go while an executor runs: no use that the kernel counted is lost or counted twice.

Use in slots without a sample is in no slot, as those are reported as not measured.
"""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agent.core.snapshot import ContainerUse, Snapshot
from agent.core.surrogate import MOST_UNSEEN, MonitorSurrogate, Recorded
from penstock.wire.master_api import ExecutorUse

SLOT_S = 3.0
#: While an agent looks an executor uses so many cores for so many seconds, and a stage may end then; (…, for how long
#: none looks afterwards).
LIVES = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 16).map(lambda quarters: quarters / 4), st.integers(1, 60), st.booleans()),
            max_size=6,
        ),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=3,
)


def report(surrogate: MonitorSurrogate) -> list[ExecutorUse]:
    return surrogate.report(lambda container: (0.0, False), 1_000_000)


@given(LIVES, st.floats(0.0, 4.0))
def test_use_counted_by_the_kernel_is_reported_once(
    lives: list[tuple[list[tuple[float, int, bool]], int]], cores_unseen: float
) -> None:
    clock, elapsed_s, counted_s, stages = 0.0, 0.0, 0.0, 0
    unseen_s = 0.0
    surrogate, journal = MonitorSurrogate(SLOT_S), None
    surrogate.began("c", "job", "task", clock)
    for number, (looks, away_s) in enumerate(lives):
        if number:
            surrogate = MonitorSurrogate(SLOT_S)
            surrogate.gaps_read = True
            clock += 1000.0  # another agent, another clock
            kept = msgspec.msgpack.decode(journal, type=Recorded) if journal is not None else None
            surrogate.resumed("c", "job", "task", clock - elapsed_s, kept)
            surrogate.stages_ended("job", stages)
            last_s = len(kept.mean) * SLOT_S if kept is not None else 0.0
        seconds = [(cores, ends and each == last) for cores, last, ends in looks for each in range(1, last + 1)]
        for second, (cores, stage_ends) in enumerate(seconds):
            clock, elapsed_s, counted_s = clock + 1.0, elapsed_s + 1.0, counted_s + cores
            if number and not second:
                unseen_s += elapsed_s - last_s
            use = ContainerUse(cpu_cores=cores, cpu_seconds=counted_s, memory_bytes=1 << 20)
            surrogate.sampled(Snapshot(clock, 1.0, containers={"c": use}))
            if stage_ends:
                stages += 1
                surrogate.stages_ended("job", stages)
            for _, recorded in surrogate.to_journal():
                journal = msgspec.msgpack.encode(recorded)
        if number < len(lives) - 1:
            elapsed_s, counted_s = elapsed_s + away_s, counted_s + away_s * cores_unseen
    recording = surrogate._live["c"].recording
    surrogate.last_parts_read = True
    surrogate.ended("c", 0.0, clock)
    (use,) = report(surrogate)
    assert use.ended
    slots = -(-elapsed_s // SLOT_S)
    if (len(lives) > 1 and not looks) or unseen_s > MOST_UNSEEN * slots * SLOT_S:
        assert use.first > 0 and use.mean == []
        return
    assert (use.first, len(use.mean)) == (0, slots)
    lengths = [min(SLOT_S, elapsed_s - slot * SLOT_S) for slot in range(len(use.mean))]
    if use.mean:
        assert abs((len(use.mean) - 1 + use.last_part) * SLOT_S - elapsed_s) <= 1e-3 * SLOT_S
    rounded_s = 0.0016 * len(use.mean) * len(lives)
    assert abs(recording.cpu_seconds - counted_s) <= rounded_s
    told_s = sum(mean[0] / 1000 * length for mean, length in zip(use.mean, lengths, strict=True) if mean is not None)
    assert told_s <= counted_s + rounded_s
    gaps = use.mean.count(None)
    assert gaps <= unseen_s / SLOT_S
    assert gaps or told_s >= counted_s - rounded_s
    known = [end for end in use.stages if end < slots]
    assert known == sorted(set(known)) and len(known) <= stages
