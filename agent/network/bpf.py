"""One four-instruction program per container, loaded by the bare bpf(2) call: it marks what the container sends.

cgroup v2 has no net_cls. A ``BPF_PROG_TYPE_CGROUP_SKB`` program on a cgroup's egress (Linux 4.10) sees every packet of
every socket created in the cgroup and its children and stores a class id in ``skb->priority``; HTB puts a packet whose
priority is one of its class ids straight into that class. The program goes with its cgroup.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from pathlib import Path

#: By it a program of ours is recognised (``bpftool prog`` shows it); at most 15 characters.
NAME = b"penstock_egress"

#: Its number; 280 on the architectures that came later (arm64, riscv64, loongarch64).
_SYSCALL = {"x86_64": 321, "ppc64le": 361, "s390x": 351}.get(platform.machine(), 280)
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH, _PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD, _PROG_QUERY = 5, 8, 9, 13, 15, 16
_CGROUP_SKB = 8
_EGRESS = 1  # BPF_CGROUP_INET_EGRESS
_ALLOW_MULTI = 2  # Linux 4.15
_REPLACE = 4  # Linux 5.6
_SKB_PRIORITY = 32  # offsetof(struct __sk_buff, priority)
_MOST_PROGRAMS = 64  # BPF_CGROUP_MAX_PROGS
_INFO_BYTES, _INFO_NAME = 80, slice(64, 80)  # struct bpf_prog_info, up to its name
_ATTR_BYTES = 128  # the kernel wants what it does not know to be zero

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def assemble(class_id: int) -> bytes:
    """The program ``skb->priority = class_id; return 1`` (1: the packet goes on), in the host's byte order."""

    def instruction(code: int, destination: int, source: int, offset: int, immediate: int) -> bytes:
        little = struct.pack("=H", 1)[0] == 1
        registers = source << 4 | destination if little else destination << 4 | source
        return struct.pack("=BBhi", code, registers, offset, immediate)

    return (
        instruction(0xB7, 2, 0, 0, class_id)  # r2 = class_id
        + instruction(0x63, 1, 2, _SKB_PRIORITY, 0)  # *(u32 *)(r1 + 32) = r2
        + instruction(0xB7, 0, 0, 0, 1)  # r0 = 1
        + instruction(0x95, 0, 0, 0, 0)  # exit
    )


@contextlib.contextmanager
def loaded(class_id: int) -> Iterator[int]:
    """A descriptor of the program; it stays loaded for as long as something holds it.

    Raises:
        OSError: EPERM without CAP_BPF (or CAP_SYS_ADMIN), ENOSYS or EINVAL where the kernel has no such programs.
    """
    code = ctypes.create_string_buffer(assemble(class_id))
    license_ = ctypes.create_string_buffer(b"Apache-2.0")  # the kernel asks for GPL only where its helpers are called
    attributes = struct.pack(
        "=IIQQIIQII16sII", _CGROUP_SKB, 4, ctypes.addressof(code), ctypes.addressof(license_),
        0, 0, 0, 0, 0, NAME, 0, _EGRESS,
    )  # fmt: skip
    program = _bpf(_PROG_LOAD, attributes)[0]
    try:
        yield program
    finally:
        os.close(program)


def attach(cgroup: Path, class_id: int) -> None:
    """Mark with ``class_id`` whatever the cgroup and its children send, on sockets already open too. Idempotent.

    Attach at the container only, never at its children: the parent's program runs after the child's.

    Raises:
        OSError: ENOENT when the cgroup is gone; EPERM without CAP_BPF and CAP_NET_ADMIN, or when somebody's program
            further up forbids any below it.
    """
    with _opened(cgroup) as directory, loaded(class_id) as program, _ours(directory) as former:
        flags = _ALLOW_MULTI | (_REPLACE if former else 0)
        replaced = former[0] if former else 0
        _bpf(_PROG_ATTACH, struct.pack("=IIIII", directory, program, _EGRESS, flags, replaced))


def detach(cgroup: Path) -> None:
    """Take our programs off the cgroup; others' stay. Idempotent; what ends with its cgroup needs no detaching.

    Raises:
        OSError: ENOENT when the cgroup is gone.
    """
    with _opened(cgroup) as directory, _ours(directory) as programs:
        for program in programs:
            _bpf(_PROG_DETACH, struct.pack("=III", directory, program, _EGRESS))


def attached(cgroup: Path) -> list[int]:
    """Ids of all programs, ours and others', on the egress of this very cgroup.

    Raises:
        OSError: ENOENT when the cgroup is gone, EPERM without CAP_NET_ADMIN.
    """
    with _opened(cgroup) as directory:
        return _query(directory)


def _query(directory: int) -> list[int]:
    ids = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    attributes = struct.pack("=IIIIQI", directory, _EGRESS, 0, 0, ctypes.addressof(ids), _MOST_PROGRAMS)
    (count,) = struct.unpack_from("=I", _bpf(_PROG_QUERY, attributes)[1], 24)
    return list(ids[:count])


@contextlib.contextmanager
def _ours(directory: int) -> Iterator[list[int]]:
    """Descriptors of our programs on the cgroup.

    Opening a program by its id takes CAP_SYS_ADMIN. Without, none of ours is found: a second one is then attached
    behind it, runs after it and so has the last word.
    """
    with contextlib.ExitStack() as opened:
        found: list[int] = []
        for program_id in _query(directory):
            try:
                program = _bpf(_PROG_GET_FD_BY_ID, struct.pack("=I", program_id))[0]
            except OSError as error:
                if error.errno == errno.ENOENT:  # detached meanwhile
                    continue
                if error.errno == errno.EPERM:
                    break
                raise
            opened.callback(os.close, program)
            if _name(program) == NAME:
                found.append(program)
        yield found


def _name(program: int) -> bytes:
    info = ctypes.create_string_buffer(_INFO_BYTES)
    _bpf(_OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", program, _INFO_BYTES, ctypes.addressof(info)))
    return info.raw[_INFO_NAME].rstrip(b"\0")


@contextlib.contextmanager
def _opened(cgroup: Path) -> Iterator[int]:
    directory = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)


def _bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """What the call returns, and the attributes as the kernel left them."""
    buffer = ctypes.create_string_buffer(attributes, _ATTR_BYTES)
    numbers = ctypes.c_long(_SYSCALL), ctypes.c_long(command)
    result = _libc.syscall(*numbers, ctypes.byref(buffer), ctypes.c_long(_ATTR_BYTES))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"bpf({command}): {os.strerror(code)}")
    return result, buffer.raw
