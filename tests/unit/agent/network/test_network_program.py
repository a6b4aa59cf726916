"""The assembler byte by byte, and the two programs run by an interpreter of the few instructions that they use."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field

import pytest

from agent.network import programs
from agent.network.bpf_asm import If, Program, Register, Sum
from agent.network.programs import NANOSECONDS

SLOT = 3
BASE = SLOT * programs.SLOT_BYTES


@pytest.mark.skipif(sys.byteorder != "little", reason="elsewhere: the bytes below are those of a little-endian machine")
def test_instructions_are_encoded_as_the_kernel_has_them() -> None:
    program = Program()
    program.do(Sum.SET, Register.R2, -1)
    program.do(Sum.ADD, Register.R2, Register.R1)
    program.jump(If.GREATER, Register.R2, 7, "end")
    program.map_value(Register.R7, 5, 640)
    program.load(Register.R1, Register.R6, 40, size=4)
    program.store(Register.R6, 32, Register.R1, size=4)
    program.add_to(Register.R7, 8, Register.R8)
    program.call(5)
    program.label("end")
    program.finish(1)

    assert program.code() == bytes.fromhex(
        "b7020000 ffffffff"  # r2 = -1
        "0f120000 00000000"  # r2 += r1
        "25020600 07000000"  # if r2 > 7 goto +6
        "18270000 05000000 00000000 80020000"  # r7 = value of map 5, + 640
        "61612800 00000000"  # r1 = *(u32 *)(r6 + 40)
        "63162000 00000000"  # *(u32 *)(r6 + 32) = r1
        "db870800 00000000"  # lock *(u64 *)(r7 + 8) += r8
        "85000000 05000000"  # call 5
        "b7000000 01000000"  # r0 = 1
        "95000000 00000000"  # exit
    )


def test_a_jump_to_nowhere_is_an_error() -> None:
    program = Program()
    program.jump(If.EQUAL, Register.R1, 0, "nowhere")
    with pytest.raises(KeyError, match="nowhere"):
        program.code()


@dataclass
class Machine:
    """Runs a program on a packet, at a time, with the table that the programs share."""

    code: bytes
    now: int = NANOSECONDS
    table: dict[int, int] = field(default_factory=dict)
    packet: dict[int, int] = field(default_factory=dict)

    def run(self, **packet: int) -> int:
        offsets = {"len": 0, "priority": 32, "ifindex": 40, "gso_segs": 164, "gso_size": 176}
        self.packet = {offsets[name]: value for name, value in {"ifindex": 2, **packet}.items()}
        values: list[int] = [0] * 10
        place = 0
        while True:
            code, registers, offset, immediate = struct.unpack_from("=BBhi", self.code, 8 * place)
            target, source = registers & 15, registers >> 4
            if sys.byteorder == "big":
                target, source = source, target
            place += 1
            if code == 0x95:
                return values[0]
            if code == 0x18:
                assert source == 2
                values[target] = struct.unpack_from("=i", self.code, 8 * place + 4)[0]
                place += 1
            elif code == 0x85:
                assert immediate == 5
                values[0] = self.now
                values[1:6] = [0xDEAD] * 5
            elif code in (0x61, 0x79):
                memory = self.packet if code == 0x61 else self.table
                values[target] = memory.get(values[source] + offset, 0)
            elif code in (0x63, 0x7B, 0xDB):
                memory = self.packet if code == 0x63 else self.table
                former = memory.get(values[target] + offset, 0) if code == 0xDB else 0
                memory[values[target] + offset] = (former + values[source]) % 2**64
            else:
                operand = (values[source] if code & 8 else immediate) % 2**64
                operation = code & ~8
                if operation & 7 == 5:
                    left = values[target]
                    taken = {0x15: left == operand, 0x25: left > operand, 0x35: left >= operand}[operation]
                    place += offset if taken else 0
                else:
                    values[target] = self._sum(operation, values[target], operand)

    @staticmethod
    def _sum(operation: int, left: int, right: int) -> int:
        if operation == 0x37:
            return left // right if right else 0
        return {0x07: left + right, 0x17: left - right, 0x27: left * right, 0xB7: right}[operation] % 2**64

    def __getitem__(self, offset: int) -> int:
        return self.table.get(BASE + offset, 0)

    def __setitem__(self, offset: int, value: int) -> None:
        self.table[BASE + offset] = value


def egress() -> Machine:
    return Machine(programs.egress(9, SLOT))


def ingress(rate: int, burst_ns: int = NANOSECONDS // 4) -> Machine:
    machine = Machine(programs.ingress(9, SLOT))
    machine[programs.RATE], machine[programs.BURST_NS], machine[programs.PAID_NS] = rate, burst_ns, machine.now
    return machine


def test_a_sent_packet_gets_the_class_of_the_table_and_is_counted() -> None:
    machine = egress()
    machine[programs.CLASS_ID] = 0x7A11_0001
    assert machine.run(len=1428, priority=6) == 1
    assert machine.packet[32] == 0x7A11_0001
    assert (machine[programs.SENT_BYTES], machine[programs.SENT_PACKETS]) == (1442, 1)


def test_without_a_class_the_priority_of_the_packet_stays() -> None:
    machine = egress()
    assert machine.run(len=1428, priority=6) == 1
    assert machine.packet[32] == 6
    assert machine[programs.SENT_PACKETS] == 1


@pytest.mark.parametrize(
    ("packet", "wire_bytes", "segments"),
    [
        ({"len": 52}, 66, 1),
        ({"len": 1500, "gso_segs": 1, "gso_size": 1448}, 1514, 1),
        ({"len": 52 + 10 * 1448, "gso_segs": 10, "gso_size": 1448}, 10 * 1514, 10),
        ({"len": 52 + 10 * 1448, "gso_size": 1448}, 11 * 66 + 10 * 1448, 11),  # without a count: at most one more
    ],
)
def test_merged_packets_count_as_those_on_the_wire(packet: dict[str, int], wire_bytes: int, segments: int) -> None:
    for machine, counted in (
        (egress(), (programs.SENT_BYTES, programs.SENT_PACKETS)),
        (ingress(0), (programs.RECEIVED_BYTES, programs.RECEIVED_PACKETS)),
    ):
        assert machine.run(**packet) == 1
        assert [machine[offset] for offset in counted] == [wire_bytes, segments]


@pytest.mark.parametrize("machine", [egress(), ingress(1250)], ids=["egress", "ingress"])
def test_loopback_is_left_alone(machine: Machine) -> None:
    before = dict(machine.table)
    assert all(machine.run(len=60_000, ifindex=1) == 1 for _ in range(10))
    assert machine.table == before


def test_the_bucket_passes_its_rate_and_its_savings() -> None:
    machine = ingress(rate=1_442_000)  # a thousand packets a second
    passed = 0
    for _ in range(4000):
        machine.now += NANOSECONDS // 4000
        passed += machine.run(len=1428)
    assert passed == pytest.approx(1000, abs=2)
    assert machine[programs.RECEIVED_PACKETS] == passed
    assert machine[programs.DROPPED_PACKETS] == 4000 - passed

    machine.now += 10 * NANOSECONDS  # idle: a quarter of a second is saved up, not ten
    assert sum(machine.run(len=1428) for _ in range(1000)) == pytest.approx(250, abs=2)


def test_a_packet_larger_than_all_that_is_saved_passes_and_is_paid_off_later() -> None:
    machine = ingress(rate=14_420, burst_ns=0)
    assert [machine.run(len=14_406), machine.run(len=40)] == [1, 0]
    machine.now += NANOSECONDS - 1
    assert machine.run(len=40) == 0
    machine.now += 1
    assert machine.run(len=40) == 1
