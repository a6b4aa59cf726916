"""The BPF program, byte by byte, and what HTB is asked for."""

from __future__ import annotations

import struct
import sys

import pytest

from agent.network import bpf
from agent.network.htb import HANDLE, class_id, class_parameters


@pytest.mark.skipif(sys.byteorder != "little", reason="the bytes below are those of a little-endian machine")
def test_the_program_stores_the_class_in_the_priority_and_lets_the_packet_go() -> None:
    assert bpf.assemble(0x7A11_0001) == bytes.fromhex(
        "b7020000 0100117a"  # r2 = 0x7a110001
        "63212000 00000000"  # *(u32 *)(r1 + 32) = r2
        "b7000000 01000000"  # r0 = 1
        "95000000 00000000"  # exit
    )


@pytest.mark.parametrize("slot", [1, 255, 256, 65_000])
def test_a_class_id_fits_the_signed_immediate_of_an_instruction(slot: int) -> None:
    (immediate,) = struct.unpack_from("=i", bpf.assemble(class_id(slot)), 4)
    assert immediate == HANDLE + slot
    assert divmod(immediate, 1 << 16) == (0x7A11, slot)


def test_the_name_fits_the_kernels_field() -> None:
    assert len(bpf.NAME) <= 15


@pytest.mark.parametrize(
    ("rate", "burst", "quantum"),
    [
        (1_250, 16_000, 1_514),  # 10 kbit/s: never less than a full frame
        (2_500_000, 16_000, 2_500),  # 20 Mbit/s
        (4_000_000, 16_000, 4_000),  # 4 ms of it are the least burst
        (125_000_000, 500_000, 60_000),  # 1 Gbit/s
        (12_500_000_000, 50_000_000, 60_000),  # 100 Gbit/s, above 32 bits
    ],
)
def test_burst_and_quantum_follow_the_rate(rate: int, burst: int, quantum: int) -> None:
    parameters = class_parameters(rate)
    assert (parameters["rate"], parameters["ceil"]) == (rate, rate)
    assert (parameters["burst"], parameters["cburst"]) == (burst, burst)
    assert parameters["quantum"] == quantum
