"""A minimal assembler for the BPF programs of this package, with labels. Pure.

Encoding: linux/Documentation/bpf/standardization/instruction-set.rst.
"""

from __future__ import annotations

import struct
import sys
from enum import IntEnum

_IMM64, _RETURN, _CALL, _ADD_64 = 0x18, 0x95, 0x85, 0xDB
_OF_REGISTER = 0x08  # BPF_X: the second operand is a register
_LOAD, _STORE = {4: 0x61, 8: 0x79}, {4: 0x63, 8: 0x7B}
_MAP_VALUE = 2  # BPF_PSEUDO_MAP_VALUE, Linux 5.2


#: R0: result; R1–R5: arguments, clobbered by a call; R6–R9: preserved.
Register = IntEnum("Register", "R0 R1 R2 R3 R4 R5 R6 R7 R8 R9", start=0)


class Sum(IntEnum):
    """64-bit arithmetic, unsigned."""

    ADD = 0x07
    SUBTRACT = 0x17
    MULTIPLY = 0x27
    DIVIDE = 0x37
    SET = 0xB7


class If(IntEnum):
    """64-bit comparisons, unsigned."""

    EQUAL = 0x15
    GREATER = 0x25
    AT_LEAST = 0x35


class Program:
    """A sequence of instructions; ``code`` resolves the jumps."""

    def __init__(self) -> None:
        self._instructions: list[tuple[int, int, int, int, int]] = []
        self._labels: dict[str, int] = {}
        self._jumps: dict[int, str] = {}

    def label(self, name: str) -> None:
        """Define the target of jumps to this name."""
        self._labels[name] = len(self._instructions)

    def do(self, operation: Sum, target: Register, operand: Register | int) -> None:
        """``target = target OPERATION operand``."""
        self._with_operand(operation, target, 0, operand)

    def jump(self, when: If, left: Register, right: Register | int, to: str) -> None:
        """Jump forward to a label if the comparison holds."""
        self._jumps[len(self._instructions)] = to
        self._with_operand(when, left, 0, right)

    def load(self, target: Register, base: Register, offset: int, size: int = 8) -> None:
        """``target = *(base + offset)``, of 4 or 8 bytes."""
        self._add(_LOAD[size], target, base, offset, 0)

    def store(self, base: Register, offset: int, source: Register, size: int = 8) -> None:
        """``*(base + offset) = source``, of 4 or 8 bytes."""
        self._add(_STORE[size], base, source, offset, 0)

    def add_to(self, base: Register, offset: int, source: Register) -> None:
        """``*(base + offset) += source``: 8 bytes, atomically."""
        self._add(_ADD_64, base, source, offset, 0)

    def map_value(self, target: Register, table: int, offset: int) -> None:
        """``target`` = address of an offset in the only value of an array map, open as descriptor ``table``."""
        self._add(_IMM64, target, _MAP_VALUE, 0, table)
        self._add(0, 0, 0, 0, offset)

    def call(self, helper: int) -> None:
        """``R0 = helper(R1 … R5)``, by its number (enum bpf_func_id)."""
        self._add(_CALL, 0, 0, 0, helper)

    def finish(self, result: int) -> None:
        """Return the result."""
        self.do(Sum.SET, Register.R0, result)
        self._add(_RETURN, 0, 0, 0, 0)

    def code(self) -> bytes:
        """Return the machine code, in the host's byte order.

        Raises:
            KeyError: a jump to an undefined label.
        """
        little = sys.byteorder == "little"
        parts: list[bytes] = []
        for place, (operation, target, source, offset, immediate) in enumerate(self._instructions):
            registers = source << 4 | target if little else target << 4 | source
            distance = self._labels[self._jumps[place]] - place - 1 if place in self._jumps else offset
            parts.append(struct.pack("=BBhi", operation, registers, distance, immediate))
        return b"".join(parts)

    def _with_operand(self, operation: int, target: int, offset: int, operand: Register | int) -> None:
        if isinstance(operand, Register):
            self._add(operation | _OF_REGISTER, target, operand, offset, 0)
        else:
            self._add(operation, target, 0, offset, operand)

    def _add(self, operation: int, target: int, source: int, offset: int, immediate: int) -> None:
        self._instructions.append((operation, target, source, offset, immediate))
