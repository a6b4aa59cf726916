"""The two BPF programs of a container, and the table that they share with the agent. Pure.

Each container has a slot in one map that the agent has mapped into its memory: classes, limits and counters are changed
and read without a system call, and take effect with the next packet.

- Egress: a packet's ``skb->priority`` is set to the HTB class id in the table; 0 leaves it unchanged.
- Ingress: packets pass a token bucket, stored as the time up to which received bytes are paid for (as in the generic
  cell rate algorithm): a packet adds its bytes divided by the rate; it is dropped if that time is in the future. At
  most ``burst_ns`` can accumulate. Concurrent processors cannot lose a payment (the addition is atomic), except one
  packet's when a bucket has just been full.

Loopback traffic is neither counted nor limited. Bytes are counted as on the wire: a packet merged or to be split by
offload has more headers there.
"""

from __future__ import annotations

from agent.network.bpf_asm import If, Program, Register, Sum

#: Slots are 1 … MAX_SLOT; the table takes 1 MiB of kernel memory in total.
MAX_SLOT = 8191
SLOT_BYTES = 128
TABLE_BYTES = (MAX_SLOT + 1) * SLOT_BYTES
#: Offsets in a slot, 8 bytes each; the two directions do not share a cache line.
CLASS_ID, SENT_BYTES, SENT_PACKETS = 0, 8, 16
RATE, BURST_NS, PAID_NS, RECEIVED_BYTES, RECEIVED_PACKETS, DROPPED_PACKETS = 64, 72, 80, 88, 96, 104
NANOSECONDS = 1_000_000_000

#: offsetof(struct __sk_buff, …): Linux 5.1 brought gso_segs, 5.7 gso_size.
_LEN, _PRIORITY, _IFINDEX, _GSO_SEGS, _GSO_SIZE = 0, 32, 40, 164, 176
_LOOPBACK = 1  # its index in every network namespace
_ETHERNET_BYTES = 14
#: Ethernet, IPv4, TCP with timestamps: 20 too few for IPv6, 24 too many for UDP.
_SEGMENT_HEADER_BYTES = 66
_KTIME_GET_NS = 5  # bpf_ktime_get_ns; for programs of any licence since Linux 5.8
_DROP, _PASS = 0, 1

_R0, _R1, _R2, _R3, _R4, _R5, _R6, _R7, _R8, _R9 = Register


def egress(table: int, slot: int) -> bytes:
    """Assemble the program that marks and counts a container's egress; ``table`` is a descriptor of the map."""
    program = Program()
    _measure(program, table, slot)
    program.load(_R1, _R7, CLASS_ID)
    program.jump(If.EQUAL, _R1, 0, "count")
    program.store(_R6, _PRIORITY, _R1, size=4)
    program.label("count")
    program.add_to(_R7, SENT_BYTES, _R8)
    program.add_to(_R7, SENT_PACKETS, _R9)
    program.label("pass")
    program.finish(_PASS)
    return program.code()


def ingress(table: int, slot: int) -> bytes:
    """Assemble the program that limits and counts a container's ingress."""
    program = Program()
    _measure(program, table, slot)
    program.load(_R1, _R7, RATE)
    program.jump(If.EQUAL, _R1, 0, "count")
    program.call(_KTIME_GET_NS)
    program.load(_R2, _R7, PAID_NS)
    program.load(_R3, _R7, BURST_NS)
    program.do(Sum.SET, _R1, _R0)
    program.do(Sum.SUBTRACT, _R1, _R3)  # older credit does not accumulate
    program.jump(If.AT_LEAST, _R2, _R1, "judge")
    program.store(_R7, PAID_NS, _R1)
    program.do(Sum.SET, _R2, _R1)
    program.label("judge")
    program.jump(If.GREATER, _R2, _R0, "drop")
    program.do(Sum.SET, _R3, _R8)
    program.do(Sum.MULTIPLY, _R3, NANOSECONDS)
    program.load(_R1, _R7, RATE)
    program.do(Sum.DIVIDE, _R3, _R1)  # by 0, if the limit was just removed: 0
    program.add_to(_R7, PAID_NS, _R3)
    program.label("count")
    program.add_to(_R7, RECEIVED_BYTES, _R8)
    program.add_to(_R7, RECEIVED_PACKETS, _R9)
    program.label("pass")
    program.finish(_PASS)
    program.label("drop")
    program.add_to(_R7, DROPPED_PACKETS, _R9)
    program.finish(_DROP)
    return program.code()


def _measure(program: Program, table: int, slot: int) -> None:
    """Set R6: the packet, R7: its slot, R8: its bytes on the wire, R9: its packet count. Jump to "pass" on loopback."""
    program.do(Sum.SET, _R6, _R1)
    program.map_value(_R7, table, slot * SLOT_BYTES)
    program.load(_R1, _R6, _IFINDEX, size=4)
    program.jump(If.EQUAL, _R1, _LOOPBACK, "pass")
    program.load(_R8, _R6, _LEN, size=4)
    program.load(_R9, _R6, _GSO_SEGS, size=4)
    program.jump(If.GREATER, _R9, 0, "sized")
    program.do(Sum.SET, _R9, 1)
    program.load(_R1, _R6, _GSO_SIZE, size=4)
    program.jump(If.EQUAL, _R1, 0, "sized")
    program.do(Sum.SET, _R9, _R8)  # merged by a virtio host, which passes only the size of a part
    program.do(Sum.ADD, _R9, _R1)
    program.do(Sum.SUBTRACT, _R9, 1)
    program.do(Sum.DIVIDE, _R9, _R1)
    program.label("sized")
    program.do(Sum.SET, _R1, _R9)
    program.do(Sum.MULTIPLY, _R1, _SEGMENT_HEADER_BYTES)
    program.do(Sum.ADD, _R8, _R1)
    program.do(Sum.SUBTRACT, _R8, _SEGMENT_HEADER_BYTES - _ETHERNET_BYTES)
