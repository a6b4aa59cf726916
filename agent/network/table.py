"""The table that the containers' programs share with the agent, mapped into its memory.

What is written here the programs see with the next packet; what they count is read without a system call.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from typing import Self

from agent.network import bpf, programs
from agent.network.programs import NANOSECONDS, SLOT_BYTES, TABLE_BYTES

#: What a container may save up of its ingress limit. With less, TCP cannot keep up to it: losses stop it for a round
#: trip or a timeout, and it must be able to catch up.
INGRESS_BURST_NS = NANOSECONDS // 4
_WORDS = SLOT_BYTES // 8
_COUNTED = (
    programs.SENT_BYTES, programs.SENT_PACKETS, programs.RECEIVED_BYTES, programs.RECEIVED_PACKETS,
    programs.DROPPED_PACKETS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counters:
    """What a container has sent and received since it was attached, restarts of the agent included.

    Bytes are those on the wire, Ethernet's headers included; loopback is left out. Sent is what the container gave to
    the network, before its HTB class made it wait.
    """

    sent_bytes: int = 0
    sent_packets: int = 0
    received_bytes: int = 0
    received_packets: int = 0
    dropped_packets: int = 0
    """Packets that came in above the ingress limit. TCP sends them again."""


class Table:
    """One per agent; ``descriptor`` is the map's.

    Raises:
        OSError: EPERM without CAP_BPF (or CAP_SYS_ADMIN), EINVAL before Linux 5.5.
    """

    def __init__(self) -> None:
        self.descriptor = bpf.create_table()
        try:
            self._memory = mmap.mmap(self.descriptor, TABLE_BYTES)
        except BaseException:
            os.close(self.descriptor)
            raise
        self._words = memoryview(self._memory).cast("Q")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it; attached programs keep it alive."""
        self._words.release()
        self._memory.close()
        os.close(self.descriptor)

    def fill(self, slot: int, content: bytes | None) -> None:
        """A slot as it stood in another table, or empty."""
        first = slot * _WORDS
        self._words[first : first + _WORDS] = memoryview(content or bytes(SLOT_BYTES)).cast("Q")

    def mark(self, slot: int, class_id: int) -> None:
        """The HTB class that its packets go to from now on; 0: none."""
        self._put(slot, programs.CLASS_ID, class_id)

    def limit(self, slot: int, ingress_bytes_per_s: int) -> None:
        """What may come in from now on; 0: everything. What is saved up, or owed, in bytes stays the same."""
        former = self._get(slot, programs.RATE)
        if former == ingress_bytes_per_s:
            return
        paid_ns = now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)  # what bpf_ktime_get_ns tells
        if former and ingress_bytes_per_s:
            ahead_ns = max(self._get(slot, programs.PAID_NS) - now, -INGRESS_BURST_NS)
            paid_ns = now + ahead_ns * former // ingress_bytes_per_s
        self._put(slot, programs.PAID_NS, paid_ns)
        self._put(slot, programs.BURST_NS, INGRESS_BURST_NS)
        self._put(slot, programs.RATE, ingress_bytes_per_s)

    def counters(self, slot: int) -> Counters:
        """What was counted."""
        return Counters(*(self._get(slot, offset) for offset in _COUNTED))

    def _get(self, slot: int, offset: int) -> int:
        return self._words[slot * _WORDS + offset // 8]

    def _put(self, slot: int, offset: int, value: int) -> None:
        self._words[slot * _WORDS + offset // 8] = value
