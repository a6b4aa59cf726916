"""Run in a machine, with Debian's own Python: print each thing that an installation may add to, one sorted line
each.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_TOPS = (
    "/etc", "/opt", "/usr/local", "/usr/lib/systemd", "/run", "/srv", "/root", "/home", "/tmp", "/var", "/dev/shm",
)  # fmt: skip
#: Files that change by themselves, or are Ansible's and ssh's own, or the tests'.
_PASSING = (
    # The image's files, nearly all that there are; files taken from it are linked, and neither is written to.
    "/opt/venv", "/opt/wheelhouse",
    "/run/systemd", "/run/udev", "/run/log", "/run/sshd", "/run/lock", "/run/dmeventd", "/run/blkid", "/run/mount",
    "/root/.ansible", "/home/tester/work",
    "/run/user", "/run/motd", "/var/lib/systemd", "/var/lib/apt", "/var/lib/dpkg", "/var/lib/dbus",
    # The copies of the former files that groupadd and groupdel keep.
    "/etc/group-", "/etc/gshadow-", "/etc/passwd-", "/etc/shadow-", "/etc/subuid-", "/etc/subgid-",
)  # fmt: skip
_BPF_PROG_GET_NEXT_ID, _BPF_PROG_GET_FD_BY_ID, _BPF_OBJ_GET_INFO_BY_FD = 11, 13, 15
_SYS_BPF = 321  # x86_64
_TRIES = 5


def main() -> None:
    """Print it."""
    for line in sorted({*_files(), *_accounts(), *_units(), *_cgroups(), *_links(), *_programs()}):
        print(line)


def _files() -> Iterator[str]:
    for top in _TOPS:
        for directory, below, names in os.walk(top):
            if directory.startswith(_PASSING):
                below.clear()
                continue
            yield f"directory {directory}"
            for name in names:
                path = Path(directory, name)
                if not str(path).startswith(_PASSING):
                    yield f"file {path}{_content(path)}"


def _content(path: Path) -> str:
    """Return the content of configuration files; of others only their existence counts."""
    if path.is_symlink() or not path.is_file() or not str(path).startswith("/etc"):
        return ""
    return f" {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


def _accounts() -> Iterator[str]:
    for what in ("passwd", "group"):
        yield from (f"{what} {line}" for line in _said("getent", what))


def _units() -> Iterator[str]:
    for line in _said("systemctl", "list-unit-files", "--no-legend", "--no-pager"):
        yield f"unit file {' '.join(line.split()[:2])}"
    for line in _said("systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager", "penstock*"):
        yield f"unit {line.split()[0]}"


def _cgroups() -> Iterator[str]:
    for directory, _, _ in os.walk("/sys/fs/cgroup"):
        if "penstock" in directory or directory.count("/") <= 4:
            yield f"cgroup {directory}"


def _links() -> Iterator[str]:
    yield from (f"qdisc {line}" for line in _said("tc", "qdisc", "show"))
    yield from (f"link {line.split()[1]}" for line in _said("ip", "-o", "link"))


def _programs() -> Iterator[str]:
    """BPF programs by name, but systemd's own, which come and go with its units."""
    libc = ctypes.CDLL(None, use_errno=True)
    following = 0
    counts: dict[str, int] = {}
    while True:
        attribute = ctypes.create_string_buffer(following.to_bytes(4, "little"), 128)
        if libc.syscall(_SYS_BPF, _BPF_PROG_GET_NEXT_ID, attribute, 128) != 0:
            break
        following = int.from_bytes(attribute.raw[4:8], "little")
        name = _program_name(libc, following)
        if not name.startswith("sd_"):
            counts[name] = counts.get(name, 0) + 1
    yield from (f"bpf program {name} × {count}" for name, count in counts.items())


def _program_name(libc: ctypes.CDLL, number: int) -> str:
    fd = libc.syscall(
        _SYS_BPF, _BPF_PROG_GET_FD_BY_ID, ctypes.create_string_buffer(number.to_bytes(4, "little"), 128), 128
    )
    if fd < 0:
        return "(gone)"
    try:
        info = ctypes.create_string_buffer(256)
        attribute = ctypes.create_string_buffer(
            fd.to_bytes(4, "little") + (256).to_bytes(4, "little") + ctypes.addressof(info).to_bytes(8, "little"), 128
        )
        libc.syscall(_SYS_BPF, _BPF_OBJ_GET_INFO_BY_FD, attribute, 128)
        return info.raw[64:80].partition(b"\0")[0].decode() or "(unnamed)"  # struct bpf_prog_info, name
    finally:
        os.close(fd)


def _said(*command: str) -> list[str]:
    """Its lines. systemctl gives up after 25 s, which systemd may need on a machine that gets little of its host."""
    for _ in range(_TRIES - 1):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.splitlines()
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


main()
