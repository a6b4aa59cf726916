"""Reading a shuffle's shards: a wait for the disk that has an end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from distributed.shuffle import _disk

from penstock.engines.dask import hooks
from penstock.engines.dask.shards import ShardReads

Make = Callable[[int], Any]


def test_a_read_holds_the_disk(make_gate: Make) -> None:
    gate = make_gate(1)
    with ShardReads(gate, 30.0).held(4096):
        assert gate.held["disk"] == 1
    [slot] = gate.asked
    assert (slot.kind, slot.input_bytes, slot.stage, slot.ended) == ("disk", 4096, "p2p-read", "done")


def test_it_waits_for_the_holder_of_the_disk(make_gate: Make) -> None:
    gate = make_gate(0)
    read = threading.Event()

    def reads() -> None:
        with ShardReads(gate, 60.0).held(1):
            read.set()

    thread = threading.Thread(target=reads)
    thread.start()
    gate.wait_for(lambda: bool(gate.asked))
    assert not read.is_set()
    gate.grant(1)
    assert read.wait(60)
    thread.join(60)
    assert gate.held["disk"] == 0


def test_but_not_for_ever(make_gate: Make) -> None:
    gate = make_gate(0)
    with ShardReads(gate, 0.01).held(1):
        assert [slot.ended for slot in gate.asked] == ["cancelled"]


def test_a_refused_reader_reads_all_the_same(make_gate: Make) -> None:
    gate = make_gate(1)
    gate.refuses = RuntimeError("closed")
    with ShardReads(gate, 30.0).held(1):
        assert gate.held["disk"] == 0


async def test_an_event_loop_does_not_wait(make_gate: Make) -> None:
    gate = make_gate(0)
    with ShardReads(gate, 60.0).held(1):
        assert gate.asked == []


def test_the_buffers_method_is_wrapped_where_there_is_a_file_and_restored(make_gate: Make, tmp_path: Path) -> None:
    before = _disk.DiskShardsBuffer.read
    gates = [make_gate(1), make_gate(1)]
    restores = [  # two workers of this process
        hooks.wrap_p2p_read("distributed.shuffle._disk", "DiskShardsBuffer", ShardReads(gate, 30.0).held)
        for gate in gates
    ]
    try:
        buffer = object.__new__(_disk.DiskShardsBuffer)
        buffer.directory = tmp_path
        buffer._closed, buffer._inputs_done, buffer._exception, buffer.bytes_read = False, True, None, 0
        buffer._directory_lock = _disk.ReadWriteLock()
        buffer._read = lambda path: (path.read_bytes(), 5)
        (tmp_path / "3").write_bytes(b"12345")
        assert buffer.read("3") == b"12345"
        with pytest.raises(_disk.DataUnavailable):
            buffer.read("4")
    finally:
        for restore in restores:
            restore()
    assert [(slot.input_bytes, slot.ended) for slot in gates[0].asked] == [(5, "done")]
    assert gates[1].asked == []
    assert _disk.DiskShardsBuffer.read is before
