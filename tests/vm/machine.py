"""A running virtual machine: booted from the image, driven over ssh, gone when the block ends.

with Machine() as vm:
    vm.ssh("uname -r").stdout
    urllib.request.urlopen(f"http://127.0.0.1:{vm.ports[7421]}/healthz")
"""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.vm.host import QEMU_TOOLS, dying_with_us, find, require_tools, say
from tests.vm.image import Image
from tests.vm.remote import BootError, Remote

#: Emulation takes 10 s on an idle machine; a busy one is given its time, and a hang is noticed.
_BOOT_TIMEOUT_S = 180
_BOOTS = 2
_READY = b"penstock-vm is ready"
#: Model of an additional, empty disk → QEMU's ``-drive if=``; a ``-device virtio-blk-pci`` would come before the root
#: disk and take its name.
DRIVES = {"nvme": "none", "virtio": "virtio", "slow": "virtio"}
_DRIVE_BYTES = 1024**3
#: A disk that emulated processors can keep busy, as cloud providers make them: a limit on bytes and on operations. The
#: guest recognizes it by its size.
_SLOW_BYTES = 768 * 1024**2
_SLOW = "throttling.bps-total=40000000,throttling.iops-total=2000"
#: erms, fsrm: with them kernel and libc copy and clear by `rep movsb`, which is emulated byte by byte. la57: a fifth
#: level of page tables. smap and the like: each access to a process's memory changes the access rights. Without these
#: Python takes a tenth less time, and a copy half.
_PROCESSOR = "max,erms=off,fsrm=off,la57=off,smap=off,smep=off,umip=off,pku=off"
#: The HTTP ports of agent and master.
HTTP_PORTS = (7421, 7422)


class Machine(Remote):
    """One machine. Its writes to its root disk are dropped; ``/scratch`` is a second disk, ext4, empty.

    ``memory_mib`` is the guest's; ``forward`` names guest ports, which :attr:`ports` maps to ports on the host's
    loopback; ``drives`` adds empty disks of 1 GiB, by model (:data:`DRIVES`; a ``slow`` one has 768 MiB). The guest
    reaches nothing outside.
    """

    def __init__(
        self,
        *,
        memory_mib: int = 2048,
        forward: Sequence[int] = HTTP_PORTS,
        drives: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.ports: dict[int, int] = {}
        self._memory_mib = memory_mib
        self._forward = (22, *forward)
        self._drives = tuple(drives)
        self._qemu: subprocess.Popen[bytes] | None = None
        self._console: _Console | None = None

    def boot(self, image: Image) -> None:
        """Twice, if it has to be."""
        require_tools(QEMU_TOOLS)
        for attempt in range(1, _BOOTS + 1):
            try:
                self._boot_once(image)
            except BootError as error:
                self.kill()
                if attempt == _BOOTS:
                    raise
                say(f"{error}\nvm: booting again")
            else:
                return

    def _boot_once(self, image: Image) -> None:
        scratch = self.scratch()
        self.ports = dict(zip(self._forward, _free_ports(len(self._forward)), strict=True))
        self.write_ssh_config(image, "127.0.0.1", f"Port {self.ports[22]}")
        self._qemu = subprocess.Popen(
            dying_with_us(self._qemu_command(image, scratch)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        console = self._console = _Console(self._qemu)
        if not console.ready.wait(_BOOT_TIMEOUT_S) or self._qemu.poll() is not None:
            raise BootError(f"the machine did not come up within {_BOOT_TIMEOUT_S} s; its console:\n{console.tail()}")
        if wrong := self.connect(_BOOT_TIMEOUT_S):
            raise BootError(wrong)

    def _qemu_command(self, image: Image, scratch: Path) -> list[str]:
        forwards = "".join(f",hostfwd=tcp:127.0.0.1:{host}-:{guest}" for guest, host in self.ports.items())
        # fmt: off
        return [
            find("qemu-system-x86_64"),
            "-accel", "tcg,thread=multi", "-cpu", _PROCESSOR, "-smp", "2", "-m", str(self._memory_mib),
            "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
            "-kernel", str(image.kernel), "-initrd", str(image.initrd),
            "-append", "root=/dev/vda rw console=ttyS0 quiet net.ifnames=0 fsck.mode=skip mitigations=off "
                       # Without it the kernel counts timer interrupts at boot, and panics on a host too busy for them.
                       "no_timer_check systemd.show_status=false systemd.unified_cgroup_hierarchy=1 audit=0",
            # The image is never written to, and machines that start at the same moment would fail by each other's
            # locks.
            "-drive", f"file={image.disk},format=raw,if=virtio,snapshot=on,file.locking=off",
            "-drive", f"file={scratch},format=raw,if=virtio,cache=unsafe",
            "-nic", f"user,model=virtio-net-pci,restrict=on{forwards}",
            *self._drive_arguments(),
        ]
        # fmt: on

    def _drive_arguments(self) -> list[str]:
        arguments = []
        for number, model in enumerate(self._drives):
            file = self.directory / f"drive{number}.img"
            with file.open("wb") as empty:
                empty.truncate(_SLOW_BYTES if model == "slow" else _DRIVE_BYTES)
            drive = f"file={file},format=raw,if={DRIVES[model]},id=drive{number},cache=unsafe"
            arguments += ["-drive", f"{drive},{_SLOW}" if model == "slow" else drive]
            if model == "nvme":
                arguments += ["-device", f"nvme,serial=penstock{number},drive=drive{number}"]
        return arguments

    def console(self) -> str:
        """The end of its serial line."""
        return self._console.tail() if self._console is not None else ""

    def has_ended(self) -> bool:
        """Whether QEMU has ended."""
        return self._qemu is not None and self._qemu.poll() is not None

    def kill(self) -> None:
        """At once."""
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
            self._qemu = None


class _Console:
    """Reads the serial line, so that QEMU never waits for a reader; notices the guest's line that it is ready."""

    def __init__(self, qemu: subprocess.Popen[bytes]) -> None:
        self.ready = threading.Event()
        self._said = bytearray()
        assert qemu.stdout is not None
        threading.Thread(target=self._read, args=(qemu.stdout,), name="console", daemon=True).start()

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                self._said += line
                if _READY in line:
                    self.ready.set()
        self.ready.set()  # QEMU ended: waiting for the guest is over

    def tail(self) -> str:
        """The last lines."""
        return self._said[-4000:].decode(errors="replace")


def _free_ports(count: int) -> list[int]:
    """Ports of loopback that were free a moment ago; one taken meanwhile makes QEMU end, and the boot is repeated."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
