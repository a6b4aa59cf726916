"""Machines without an emulated processor: user-mode Linux (arch/um). A loop takes as long there as on the host.

The image is the one of :mod:`tests.vm.machine`; the kernel (:mod:`tests.vm.user_mode_kernel`) runs as processes of the
host. The machines share one network with the harness, in a network namespace of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.vm.host import USER_MODE_TOOLS, dying_with_us, find, require_tools
from tests.vm.image import Image
from tests.vm.mconsole import blocked_tasks
from tests.vm.remote import BootError, Remote
from tests.vm.user_mode_kernel import ensure_kernel

_PREFIX = "10.74.20"
#: The host's side of the network.
_GATEWAY = f"{_PREFIX}.254"
_BOOT_TIMEOUT_S = 180
#: Gives ssh a connection made in the namespace; a machine that boots is waited for.
_CONNECT = """
import socket, sys, time
until = time.monotonic() + float(sys.argv[2])
while True:
    try:
        made = socket.create_connection((sys.argv[1], 22), timeout=5)
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.2)
made.setblocking(True)
socket.send_fds(socket.socket(fileno=1), [b"\\0"], [made.fileno()])
"""
#: The script before the machine's own init: the modules of its kernel, and its address among several.
_INIT = """/sbin/ip link set vec0 name eth0
/sbin/ip link set eth0 {segments}
mkdir -p /etc/systemd/system/vm-network.service.d
cat >/etc/systemd/system/vm-network.service.d/user-mode.conf <<'END'
[Service]
ExecStart=
ExecStart=/sbin/ip link set lo up
ExecStart=/sbin/ip address add {address}/24 dev eth0
ExecStart=/sbin/ip link set eth0 up
ExecStart=/sbin/ip route add default via {gateway}
END
mkdir -p /etc/systemd/system/vm-ready.service.d
cat >/etc/systemd/system/vm-ready.service.d/user-mode.conf <<'END'
[Service]
ExecStart=
ExecStart=/bin/true
END
umount /mnt
exec /sbin/init
"""


#: For `ip link set`: no packet is larger than the link's MTU; the kernel's driver does not receive larger ones.
_SEGMENTS = "gso_max_size 1500 gso_max_segs 1"
#: Models of additional disks: this kernel's own, and one that little keeps busy (at most one).
DRIVES = ("ubd", "slow")
_DRIVE_BYTES = 1024**3
#: ubd0 and ubd1 are the root disk and the one for /scratch.
_FIRST_DRIVE = 2
#: /dev/nullb0: a disk in memory that does one request (up to 127 KiB) after the other, as slow as QEMU's model `slow`.
#: A limit (null_blk.mbps) would return requests above it, and a scheduler would order only the late ones.
_SLOW_DISK = (
    "null_blk.nr_devices=1", "null_blk.gb=1", "null_blk.memory_backed=1",
    "null_blk.irqmode=2", "null_blk.completion_nsec=1600000", "null_blk.hw_queue_depth=1",
)  # fmt: skip


class Network:
    """A network namespace with a bridge; it goes when the block ends. Root's, or that of a user namespace."""

    def __init__(self) -> None:
        self._holder: subprocess.Popen[bytes] | None = None
        self._own = ("--net",) if os.geteuid() == 0 else ("--user", "--preserve-credentials", "--net")

    def __enter__(self) -> Self:
        require_tools(USER_MODE_TOOLS)
        unshare = [find("unshare"), "--net"] if os.geteuid() == 0 else [find("unshare"), "--map-root-user", "--net"]
        setup = (
            "ip link set lo up && ip link add br0 type bridge && ip address add "
            f"{_GATEWAY}/24 dev br0 && ip link set br0 {_SEGMENTS} up && echo ready && exec sleep infinity"
        )
        self._holder = subprocess.Popen(
            dying_with_us([*unshare, "sh", "-c", setup]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"ready\n":
            raise BootError("no network namespace with a bridge can be made here")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._holder is not None
        self._holder.kill()
        self._holder.communicate()

    def command(self, *command: str) -> list[str]:
        """The command that runs another one in it."""
        assert self._holder is not None
        return [find("nsenter"), f"--target={self._holder.pid}", *self._own, *command]

    def link(self, number: int) -> str:
        """Add a link for one more machine; return its name.

        A veth pair, as the kernel's driver for taps fails on several processors: it takes locks of queues that only
        other transports have (Linux 7.3, arch/um/drivers/vector_kern.c, vector_reset_stats).
        """
        name = f"machine{number}"
        steps = (
            f"ip link add {name} type veth peer name port{number} && ip link set {name} {_SEGMENTS} up && "
            f"ip link set port{number} {_SEGMENTS} master br0 up && ip link set br0 {_SEGMENTS}"
        )
        subprocess.run(self.command("sh", "-c", steps), check=True)
        return name


class UserModeMachine(Remote):
    """One machine. Its writes are lost when it ends.

    ``number`` (from 1) is unique in the network, and the last part of its address. With one of ``processors`` the
    machine is kept on one of the host's. ``drives`` adds empty disks by model (:data:`DRIVES`): /dev/ubdc and so on,
    of 1 GiB, and one that is slow, /dev/nullb0.
    """

    def __init__(
        self,
        network: Network,
        number: int,
        *,
        memory_mib: int = 1024,
        processors: int = 1,
        drives: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.address = f"{_PREFIX}.{number}"
        self._network = network
        self._number = number
        self._memory_mib = memory_mib
        self._processors = processors
        self._drives = tuple(drives)
        self._linux: subprocess.Popen[bytes] | None = None

    def boot(self, image: Image) -> None:
        """Once."""
        connect = self.directory / "connect.py"
        connect.write_text(_CONNECT)
        proxy = self._network.command(sys.executable, "-I", str(connect), self.address, str(_BOOT_TIMEOUT_S))
        self.write_ssh_config(image, self.address, f"ProxyCommand {' '.join(proxy)}", "ProxyUseFdpass yes")
        kernel = ensure_kernel()
        init = _INIT.format(address=self.address, gateway=_GATEWAY, segments=_SEGMENTS)
        (self.directory / "init.sh").write_text(init)
        with self._said.open("wb") as console:
            self._linux = subprocess.Popen(
                dying_with_us(self._network.command(*self._command(kernel, image.disk, self.scratch()))),
                stdin=subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip
        if wrong := self.connect(_BOOT_TIMEOUT_S + 60):
            raise BootError(f"{wrong}; its console:\n{self.console()}")
        _give_way_as_we_do(self._linux.pid)

    def _command(self, kernel: Path, disk: Path, scratch: Path) -> list[str]:
        # Its processes and its kernel wake each other all the time: on one processor that is ten times cheaper.
        pinned = []
        if self._processors == 1:
            processor = sorted(os.sched_getaffinity(0))[self._number % len(os.sched_getaffinity(0))]
            pinned = [find("taskset"), "--cpu-list", str(processor)]
        mac = f"52:54:00:70:74:{self._number:02x}"
        here = self.directory
        # fmt: off
        return [
            *pinned, str(kernel), f"mem={self._memory_mib}M", f"ncpus={self._processors}", "seccomp=on",
            f"uml_dir={here}", "quiet",
            f"ubd0={here}/root,{disk}", f"ubd1={scratch}", "root=/dev/ubda", "rw", *self._drive_arguments(),
            f"vec0:transport=raw,ifname={self._network.link(self._number)},mac={mac}",
            "con=null", "con0=null,fd:1", "ssl=null", "ssl0=null,fd:1", "audit=0", "selinux=0",
            # A host that stops for a while, as virtual ones do, is no reason to kill processes in the machine.
            "systemd.show_status=false", "systemd.unified_cgroup_hierarchy=1", "systemd.service_watchdogs=false",
            "init=/bin/sh", "--", "-c", f'"mount -t hostfs none /mnt -o {here}; . /mnt/init.sh"',
        ]
        # fmt: on

    def _drive_arguments(self) -> list[str]:
        arguments = list(_SLOW_DISK if "slow" in self._drives else ("null_blk.nr_devices=0",))
        for number in range(self._drives.count("ubd")):
            file = self.directory / f"drive{number}.img"
            with file.open("wb") as empty:
                empty.truncate(_DRIVE_BYTES)
            arguments.append(f"ubd{_FIRST_DRIVE + number}={file}")
        return arguments

    def console(self) -> str:
        """The end of its console."""
        return self._said.read_bytes()[-4000:].decode(errors="replace") if self._said.exists() else ""

    def standing(self) -> str:
        """The end of its console, and the tasks that are blocked in its kernel."""
        return f"{self.console()}\n{blocked_tasks(self.directory)}"

    def has_ended(self) -> bool:
        """Whether its process has ended."""
        return self._linux is not None and self._linux.poll() is not None

    @property
    def _said(self) -> Path:
        return self.directory / "console"

    def kill(self) -> None:
        """It leads a session of its own, in which some of its helpers would outlive it."""
        if self._linux is not None:
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(self._linux.pid) == self._linux.pid:
                    os.killpg(self._linux.pid, signal.SIGKILL)
            self._linux.kill()
            self._linux.wait()
            self._linux = None


def _give_way_as_we_do(leader: int) -> None:
    """Give the machine's session our nice value: the kernel weighs a session as a whole (sched(7), autogroup)."""
    with contextlib.suppress(OSError):  # a kernel that does not group by sessions, or a machine in init's
        nice = nice_of_session(Path("/proc/self/autogroup").read_text())
        Path(f"/proc/{leader}/autogroup").write_text(str(nice))


def nice_of_session(said: str) -> int:
    """Read /proc/PID/autogroup: ``/autogroup-25 nice 10``.

    The file is empty where the process's session is that of init, which no group weighs (kernel/sched/autogroup.c,
    Linux 7.2: proc_sched_autogroup_show_task).
    """
    return int(said.rsplit(maxsplit=1)[-1]) if said else 0
