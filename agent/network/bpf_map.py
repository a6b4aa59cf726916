"""The table that the containers' programs share with the agent, mapped into its memory.

The programs use values written here from the next packet on; their counters are read without a system call.
"""

from __future__ import annotations

import mmap
import os
import time
from operator import itemgetter
from typing import NamedTuple

from agent.network import bpf, programs
from agent.network.programs import NANOSECONDS, SLOT_BYTES, TABLE_BYTES

#: The credit that a container may accumulate under its ingress limit. With less, TCP cannot reach the limit: losses
#: stop it for a round trip or a timeout, after which it must be able to catch up.
INGRESS_BURST_NS = NANOSECONDS // 4
_WORDS = SLOT_BYTES // 8
#: Takes the counters, in the order of :class:`Counters`, from a slot's words.
_counted = itemgetter(
    *(offset // 8 for offset in (
        programs.SENT_BYTES, programs.SENT_PACKETS, programs.RECEIVED_BYTES, programs.RECEIVED_PACKETS,
        programs.DROPPED_PACKETS,
    ))
)  # fmt: skip


class Counters(NamedTuple):
    """A container's traffic since it was attached, including restarts of the agent.

    Bytes are those on the wire, including Ethernet headers; loopback is left out. Sent bytes are counted before packets
    wait in the HTB class.
    """

    sent_bytes: int = 0
    sent_packets: int = 0
    received_bytes: int = 0
    received_packets: int = 0
    dropped_packets: int = 0
    """Received packets above the ingress limit. TCP sends them again."""


class BpfMap:
    """The agent's table; ``descriptor`` is the map's, ``programs`` are those that use it.

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
        self.programs = bpf.SlotPrograms(self.descriptor)

    def close(self) -> None:
        """Close the table; attached programs keep it alive."""
        self.programs.close()
        self._words.release()
        self._memory.close()
        os.close(self.descriptor)

    def fill(self, slot: int, content: bytes | None) -> None:
        """Fill a slot with its content from another table, or with zeros."""
        first = slot * _WORDS
        self._words[first : first + _WORDS] = memoryview(content or bytes(SLOT_BYTES)).cast("Q")

    def mark(self, slot: int, class_id: int) -> None:
        """Set the HTB class of a container's packets; 0: none."""
        self._put(slot, programs.CLASS_ID, class_id)

    def limit(self, slot: int, ingress_bytes_per_s: int) -> None:
        """Set the ingress limit; 0: none. Accumulated credit or debt, in bytes, stays the same."""
        former = self._get(slot, programs.RATE)
        if former == ingress_bytes_per_s:
            return
        paid_ns = now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)  # the clock of bpf_ktime_get_ns
        if former and ingress_bytes_per_s:
            ahead_ns = max(self._get(slot, programs.PAID_NS) - now, -INGRESS_BURST_NS)
            paid_ns = now + ahead_ns * former // ingress_bytes_per_s
        self._put(slot, programs.PAID_NS, paid_ns)
        self._put(slot, programs.BURST_NS, INGRESS_BURST_NS)
        self._put(slot, programs.RATE, ingress_bytes_per_s)

    def counters(self, slot: int) -> Counters:
        """Return a slot's counters."""
        first = slot * _WORDS
        return Counters(*_counted(self._words[first : first + _WORDS]))

    def _get(self, slot: int, offset: int) -> int:
        return self._words[slot * _WORDS + offset // 8]

    def _put(self, slot: int, offset: int, value: int) -> None:
        self._words[slot * _WORDS + offset // 8] = value
