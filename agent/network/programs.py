"""The two BPF programs of a container, and the table that they share with the agent. Pure.

Each container has a slot, and each slot a place in one map that the agent has mapped into its memory: so a class,
a limit or a counter is changed and read without asking the kernel, and takes effect with the next packet.

- Going out, a packet's ``skb->priority`` becomes the HTB class id that stands in the table; 0 there leaves it alone.
- Coming in, it passes a token bucket, written as the point in time up to which what has come is paid for (as in the
  generic cell rate algorithm): a packet pays its bytes over the rate; it is dropped if that point is in the future. At
  most ``burst_ns`` can be saved up. Two processors at once cannot lose a payment (it is an atomic addition), only, when
  a bucket has just been full, one packet's.

What goes over loopback is neither counted nor limited. Counted are bytes on the wire: a packet that offload has merged
or will split has more headers there than here.
"""

from __future__ import annotations

from agent.network.bpf_asm import If, Program, Register, Sum

#: Slots are 1 … MAX_SLOT; the table takes 1 MiB of the kernel's memory, once.
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
    """Mark and count what a container sends; ``table`` is a descriptor of the map."""
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
    """Limit and count what a container receives."""
    program = Program()
    _measure(program, table, slot)
    program.load(_R1, _R7, RATE)
    program.jump(If.EQUAL, _R1, 0, "count")
    program.call(_KTIME_GET_NS)
    program.load(_R2, _R7, PAID_NS)
    program.load(_R3, _R7, BURST_NS)
    program.do(Sum.SET, _R1, _R0)
    program.do(Sum.SUBTRACT, _R1, _R3)  # what is older than this was not saved up
    program.jump(If.AT_LEAST, _R2, _R1, "judge")
    program.store(_R7, PAID_NS, _R1)
    program.do(Sum.SET, _R2, _R1)
    program.label("judge")
    program.jump(If.GREATER, _R2, _R0, "drop")
    program.do(Sum.SET, _R3, _R8)
    program.do(Sum.MULTIPLY, _R3, NANOSECONDS)
    program.load(_R1, _R7, RATE)
    program.do(Sum.DIVIDE, _R3, _R1)  # by 0, if it was just lifted: 0
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
    """R6: the packet, R7: its slot, R8: its bytes on the wire, R9: in how many packets. To "pass" over loopback."""
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
    program.do(Sum.SET, _R9, _R8)  # merged by a virtio host, which tells only the size of a part
    program.do(Sum.ADD, _R9, _R1)
    program.do(Sum.SUBTRACT, _R9, 1)
    program.do(Sum.DIVIDE, _R9, _R1)
    program.label("sized")
    program.do(Sum.SET, _R1, _R9)
    program.do(Sum.MULTIPLY, _R1, _SEGMENT_HEADER_BYTES)
    program.do(Sum.ADD, _R8, _R1)
    program.do(Sum.SUBTRACT, _R8, _SEGMENT_HEADER_BYTES - _ETHERNET_BYTES)
