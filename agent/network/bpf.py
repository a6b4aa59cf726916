"""BPF programs on cgroups and the map that they use, through the bpf(2) system call.

A ``BPF_PROG_TYPE_CGROUP_SKB`` program (Linux 4.10) processes every packet of every socket created in its cgroup and
those below. It is loaded without a compiler or library, outlives the process that attached it, disappears with its
cgroup, and is recognised by its name, which contains its slot (``bpftool cgroup show``).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

from agent.network import programs

#: The prefix of our programs' names; direction and slot follow. At most 15 characters in total.
NAME = b"penstock_"
_TABLE_NAME = b"penstock_table"

#: The number of bpf(2); 280 on newer architectures (arm64, riscv64, loongarch64).
_SYSCALL = {"x86_64": 321, "ppc64le": 361, "s390x": 351}.get(platform.machine(), 280)
_MAP_CREATE = 0
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH = 5, 8, 9
_PROG_GET_FD_BY_ID, _MAP_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD, _PROG_QUERY = 13, 14, 15, 16
_CGROUP_SKB = 8
_ARRAY = 2
_MMAPABLE = 0x400  # Linux 5.5
_ALLOW_MULTI = 2  # Linux 4.15
_REPLACE = 4  # Linux 5.6
_MOST_PROGRAMS = 64  # BPF_CGROUP_MAX_PROGS
_INFO_BYTES = 80  # struct bpf_prog_info, up to its name
_ATTR_BYTES = 128  # the kernel requires zeros in fields that it does not know

#: Programs of the slots up to this one stay loaded: two descriptors each.
_KEPT_SLOTS = 32

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Direction(IntEnum):
    """``BPF_CGROUP_INET_INGRESS`` and ``…_EGRESS``."""

    INGRESS = 0
    EGRESS = 1


def create_table() -> int:
    """Create a table, all zero, and return its descriptor; the programs that use it keep it alive.

    Raises:
        OSError: EPERM without CAP_BPF (or CAP_SYS_ADMIN), EINVAL before Linux 5.5.
    """
    # programs can have a value's address only in a map of one element
    attributes = struct.pack("=IIIIIII16s", _ARRAY, 4, programs.TABLE_BYTES, 1, _MMAPABLE, 0, 0, _TABLE_NAME)
    return _bpf(_MAP_CREATE, attributes)[0]


@contextlib.contextmanager
def loaded(direction: Direction, table: int, slot: int) -> Iterator[int]:
    """Load a slot's program and yield its descriptor; it stays loaded while it is referenced.

    Raises:
        OSError: EPERM without CAP_BPF (or CAP_SYS_ADMIN), ENOSYS or EINVAL if the kernel has no such programs.
    """
    assemble = programs.egress if direction is Direction.EGRESS else programs.ingress
    instructions = assemble(table, slot)
    code = ctypes.create_string_buffer(instructions)
    license_ = ctypes.create_string_buffer(b"Apache-2.0")  # the kernel requires GPL only for some helpers
    name = NAME + f"{direction.name[0].lower()}_{slot:04x}".encode()
    attributes = struct.pack(
        "=IIQQIIQII16sII", _CGROUP_SKB, len(instructions) // 8, ctypes.addressof(code), ctypes.addressof(license_),
        0, 0, 0, 0, 0, name, 0, direction,
    )  # fmt: skip
    program = _bpf(_PROG_LOAD, attributes)[0]
    try:
        yield program
    finally:
        os.close(program)


class SlotPrograms:
    """The programs that use one table. Those of the lowest slots stay loaded: short containers follow each other in
    these, and the kernel verifies and compiles a program each time that it is loaded.
    """

    def __init__(self, table: int) -> None:
        """``table`` is a descriptor of the map."""
        self._table = table
        self._kept: dict[tuple[Direction, int], tuple[int, int]] = {}

    @contextlib.contextmanager
    def of(self, direction: Direction, slot: int) -> Iterator[tuple[int, int]]:
        """Yield the descriptor and the id of a slot's program; it stays loaded while it is referenced.

        Raises:
            OSError: as for :func:`loaded`.
        """
        kept = self._kept.get((direction, slot))
        if kept is not None:
            yield kept
            return
        with loaded(direction, self._table, slot) as program:
            (program_id,) = struct.unpack_from("=I", _info(program), 4)
            if slot <= _KEPT_SLOTS:
                with contextlib.suppress(OSError):  # no descriptor is free: it is loaded again next time
                    self._kept[direction, slot] = os.dup(program), program_id
            yield program, program_id

    def loaded(self, slot: int) -> bool:
        """Return whether both programs of a slot are loaded."""
        return all((direction, slot) in self._kept for direction in Direction)

    def close(self) -> None:
        """Close the kept descriptors; attached programs stay."""
        for program, _ in self._kept.values():
            os.close(program)
        self._kept.clear()


def attach(cgroup: Path, programs: SlotPrograms, slot: int) -> dict[Direction, int]:
    """Attach this slot's programs to the cgroup, in place of any others of ours; return their ids. Idempotent.

    They act on sockets already open, too. Attach at the container only, never at cgroups below: the parent's program
    runs after the child's. Replacing a program is atomic: no packet bypasses it.

    Raises:
        OSError: ENOENT when the cgroup is gone; EPERM without CAP_BPF and CAP_NET_ADMIN, or when a program of an
            ancestor forbids any below it.
    """
    ids: dict[Direction, int] = {}
    with _opened(cgroup) as directory:
        for direction in Direction:
            there = _query(directory, direction)
            with programs.of(direction, slot) as (program, ids[direction]), _ours(there) as former:
                if ids[direction] in there:  # the kernel takes no program twice
                    continue
                flags = _ALLOW_MULTI | (_REPLACE if former else 0)
                replaced = former[0] if former else 0
                _bpf(_PROG_ATTACH, struct.pack("=IIIII", directory, program, direction, flags, replaced))
                for surplus in former[1:]:
                    _bpf(_PROG_DETACH, struct.pack("=III", directory, surplus, direction))
    return ids


def detach(cgroup: Path) -> int:
    """Detach our programs from the cgroup and return their number; others stay. A removed cgroup needs no detaching.

    Raises:
        OSError: ENOENT when the cgroup is gone.
    """
    count = 0
    with _opened(cgroup) as directory:
        for direction in Direction:
            with _ours(_query(directory, direction)) as former:
                for program in former:
                    _bpf(_PROG_DETACH, struct.pack("=III", directory, program, direction))
                    count += 1
    return count


def attached(cgroup: Path) -> dict[Direction, list[int]]:
    """Return the ids of all programs on this cgroup itself, ours and others'.

    Raises:
        OSError: ENOENT when the cgroup is gone, EPERM without CAP_NET_ADMIN.
    """
    with _opened(cgroup) as directory:
        return {direction: _query(directory, direction) for direction in Direction}


def former_slot(cgroup: Path) -> bytes | None:
    """Return the content of the slot of programs that an earlier agent left on the cgroup.

    Raises:
        OSError: ENOENT when the cgroup is gone, EPERM without CAP_NET_ADMIN.
    """
    with _opened(cgroup) as directory, _ours(_query(directory, Direction.EGRESS)) as former:
        for program in reversed(former):
            found = _slot_of(program)
            if found is not None:
                return found
    return None


def _slot_of(program: int) -> bytes | None:
    ids = ctypes.c_uint32()
    info = _info(program, count=1, where=ctypes.addressof(ids))
    (count,) = struct.unpack_from("=I", info, 52)
    with contextlib.suppress(ValueError):
        slot = int(info[64:].rstrip(b"\0").rpartition(b"_")[2], 16)
        return _read(ids.value, slot) if count else None
    return None


def _read(table_id: int, slot: int) -> bytes | None:
    try:
        table = _bpf(_MAP_GET_FD_BY_ID, struct.pack("=I", table_id))[0]
    except OSError:  # no CAP_SYS_ADMIN, or removed with its last program
        return None
    try:
        kind, _, _, value_bytes, *_ = struct.unpack_from("=5I", _info(table))
        if (kind, value_bytes) != (_ARRAY, programs.TABLE_BYTES) or slot > programs.MAX_SLOT:
            return None  # of another version
        with mmap.mmap(table, programs.TABLE_BYTES) as memory:
            return memory[slot * programs.SLOT_BYTES : (slot + 1) * programs.SLOT_BYTES]
    finally:
        os.close(table)


def _query(directory: int, direction: Direction) -> list[int]:
    ids = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    attributes = struct.pack("=IIIIQI", directory, direction, 0, 0, ctypes.addressof(ids), _MOST_PROGRAMS)
    (count,) = struct.unpack_from("=I", _bpf(_PROG_QUERY, attributes)[1], 24)
    return list(ids[:count])


@contextlib.contextmanager
def _ours(ids: list[int]) -> Iterator[list[int]]:
    """Yield the descriptors of our programs among these.

    Opening a program by its id takes CAP_SYS_ADMIN. Without it, none of ours is found: then a second program is
    attached, which runs after the first and so takes precedence.
    """
    with contextlib.ExitStack() as opened:
        found: list[int] = []
        for program_id in ids:
            try:
                program = _bpf(_PROG_GET_FD_BY_ID, struct.pack("=I", program_id))[0]
            except OSError as error:
                if error.errno == errno.ENOENT:  # detached meanwhile
                    continue
                if error.errno == errno.EPERM:
                    break
                raise
            opened.callback(os.close, program)
            if _info(program)[64:].startswith(NAME):
                found.append(program)
        yield found


def _info(descriptor: int, count: int = 0, where: int = 0) -> bytes:
    """Return struct bpf_prog_info or bpf_map_info; ``count`` and ``where``: space for the ids of a program's maps."""
    info = ctypes.create_string_buffer(struct.pack("=52xIQ16x", count, where), _INFO_BYTES)
    _bpf(_OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", descriptor, _INFO_BYTES, ctypes.addressof(info)))
    return info.raw


@contextlib.contextmanager
def _opened(cgroup: Path) -> Iterator[int]:
    directory = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)


def _bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """Return the call's result, and the attributes as modified by the kernel."""
    buffer = ctypes.create_string_buffer(attributes, _ATTR_BYTES)
    numbers = ctypes.c_long(_SYSCALL), ctypes.c_long(command)
    result = _libc.syscall(*numbers, ctypes.byref(buffer), ctypes.c_long(_ATTR_BYTES))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"bpf({command}): {os.strerror(code)}")
    return result, buffer.raw
