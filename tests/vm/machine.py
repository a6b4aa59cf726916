"""A running virtual machine: booted from the image, driven over ssh, gone when the block ends.

with Machine() as vm:
    vm.ssh("uname -r").stdout
    urllib.request.urlopen(f"http://127.0.0.1:{vm.ports[7421]}/healthz")
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.vm.host import dying_with_us, find, say
from tests.vm.image import Image, ensure_image

#: Emulation takes 10 s on an idle machine; a busy one is given its time, and a hang is noticed.
_BOOT_TIMEOUT_S = 180
_BOOTS = 2
_READY = b"penstock-vm is ready"
_SCRATCH_BYTES = 1024**3
#: Model of an additional, empty disk → QEMU's ``-drive if=``; a ``-device virtio-blk-pci`` would come before the root
#: disk and take its name.
DRIVES = {"nvme": "none", "virtio": "virtio", "slow": "virtio"}
_DRIVE_BYTES = 1024**3
#: A disk that emulated processors can keep busy, as cloud providers make them: a limit on bytes and on operations. The
#: guest tells it by its size.
_SLOW_BYTES = 768 * 1024**2
_SLOW = "throttling.bps-total=40000000,throttling.iops-total=2000"
#: The HTTP ports of agent and master.
HTTP_PORTS = (7421, 7422)


#: A network of machines among themselves: a group on the host's loopback, which no two networks share.
_LAN_GROUP = "230.7.4.20"


class BootError(Exception):
    """The machine did not come up; the end of what its console said."""


class Machine:
    """One machine. What it writes to its root disk is forgotten; ``/scratch`` is a second disk, ext4, empty.

    ``memory_mib`` is the guest's; ``forward`` names guest ports, which :attr:`ports` maps to ports on the host's
    loopback; ``drives`` adds empty disks of 1 GiB, by model (:data:`DRIVES`; a ``slow`` one has 768 MiB). ``lan`` puts
    ``eth1`` on a network with other machines: its number, which they share, and the machine's own in it. It comes up
    without an address. The guest reaches nothing else outside.
    """

    def __init__(
        self,
        *,
        memory_mib: int = 2048,
        forward: Sequence[int] = HTTP_PORTS,
        drives: Sequence[str] = (),
        lan: tuple[int, int] | None = None,
    ) -> None:
        self.ports: dict[int, int] = {}
        self._memory_mib = memory_mib
        self._forward = (22, *forward)
        self._drives = tuple(drives)
        self._lan = lan
        self._directory = Path()
        self._qemu: subprocess.Popen[bytes] | None = None

    @property
    def ssh_config(self) -> Path:
        """For ``ssh -F``: the host is called ``vm``."""
        return self._directory / "ssh_config"

    def __enter__(self) -> Self:
        image = ensure_image()
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-vm-"))
        try:
            self._boot(image)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    # ------------------------------------------------------------ use

    def ssh(
        self, command: str, *, check: bool = True, timeout_s: float = 300, stdin: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command as root; its output is kept.

        Raises:
            subprocess.CalledProcessError: it failed and ``check`` is set; what it said has been shown.
            subprocess.TimeoutExpired: it took longer.
        """
        done = subprocess.run(
            self.ssh_command(command),
            stdin=stdin if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            say(f"failed in the machine: {command}\n{done.stdout}{done.stderr}")
            done.check_returncode()
        return done

    def stream(self, command: str) -> int:
        """Run a shell command as root, its output going where ours goes; returns its exit status."""
        return subprocess.run(self.ssh_command(command), stdin=subprocess.DEVNULL, check=False).returncode

    def shell(self) -> int:
        """An interactive shell of root's."""
        return subprocess.run(["ssh", "-t", *self.ssh_command("")[1:-1]], check=False).returncode

    def ssh_command(self, command: str) -> list[str]:
        """The command on the host that runs a shell command in the machine."""
        return ["ssh", "-F", str(self.ssh_config), "vm", command]

    def put(self, local: Path, remote: str) -> None:
        """Copy a file or a directory in."""
        self._copy(str(local), f"vm:{remote}")

    def get(self, remote: str, local: Path) -> None:
        """Copy a file or a directory out; ``local`` is what it is called afterwards, replaced if it is there."""
        if local.is_dir():
            shutil.rmtree(local)
        local.parent.mkdir(parents=True, exist_ok=True)
        self._copy(f"vm:{remote}", str(local))

    def _copy(self, source: str, target: str) -> None:
        command = ["scp", "-q", "-r", "-F", str(self.ssh_config), source, target]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            say(f"failed: copy {source} to {target}: {done.stderr.strip()}")
            done.check_returncode()

    # ------------------------------------------------------------ boot and end

    def _boot(self, image: Image) -> None:
        for attempt in range(1, _BOOTS + 1):
            try:
                self._boot_once(image)
            except BootError as error:
                self._kill()
                if attempt == _BOOTS:
                    raise
                say(f"{error}\nvm: booting again")
            else:
                return

    def _boot_once(self, image: Image) -> None:
        scratch = self._directory / "scratch.img"
        with scratch.open("wb") as file:
            file.truncate(_SCRATCH_BYTES)
        subprocess.run([find("mke2fs"), "-q", "-F", "-t", "ext4", "-L", "scratch", str(scratch)], check=True)
        self.ports = dict(zip(self._forward, _free_ports(len(self._forward)), strict=True))
        self._write_ssh_config(image)
        self._qemu = subprocess.Popen(
            dying_with_us(self._qemu_command(image, scratch)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        console = _Console(self._qemu)
        if not console.ready.wait(_BOOT_TIMEOUT_S) or self._qemu.poll() is not None:
            raise BootError(f"the machine did not come up within {_BOOT_TIMEOUT_S} s; its console:\n{console.tail()}")
        # The first connection becomes the master of all later ones; it must not hold our pipes.
        first = subprocess.run(
            self.ssh_command("true"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_BOOT_TIMEOUT_S,
            check=False,
        )
        if first.returncode != 0:
            raise BootError(f"ssh does not answer: {first.stderr.decode(errors='replace').strip()}")

    def _qemu_command(self, image: Image, scratch: Path) -> list[str]:
        forwards = "".join(f",hostfwd=tcp:127.0.0.1:{host}-:{guest}" for guest, host in self.ports.items())
        # fmt: off
        return [
            find("qemu-system-x86_64"),
            "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(self._memory_mib),
            "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
            "-kernel", str(image.kernel), "-initrd", str(image.initrd),
            "-append", "root=/dev/vda rw console=ttyS0 quiet net.ifnames=0 fsck.mode=skip mitigations=off "
                       # Without it the kernel counts timer interrupts at boot, and panics on a host too busy for them.
                       "no_timer_check systemd.show_status=false systemd.unified_cgroup_hierarchy=1 audit=0",
            # Nobody writes to it, and machines that start at the same moment would fail by each other's locks.
            "-drive", f"file={image.disk},format=raw,if=virtio,snapshot=on,file.locking=off",
            "-drive", f"file={scratch},format=raw,if=virtio,cache=unsafe",
            "-nic", f"user,model=virtio-net-pci,restrict=on{forwards}",
            *self._lan_arguments(),
            *self._drive_arguments(),
        ]
        # fmt: on

    def _lan_arguments(self) -> list[str]:
        if self._lan is None:
            return []
        network, number = self._lan
        mac = f"52:54:00:70:73:{number:02x}"
        return ["-nic", f"socket,model=virtio-net-pci,mac={mac},mcast={_LAN_GROUP}:{network},localaddr=127.0.0.1"]

    def _drive_arguments(self) -> list[str]:
        arguments = []
        for number, model in enumerate(self._drives):
            file = self._directory / f"drive{number}.img"
            with file.open("wb") as empty:
                empty.truncate(_SLOW_BYTES if model == "slow" else _DRIVE_BYTES)
            drive = f"file={file},format=raw,if={DRIVES[model]},id=drive{number},cache=unsafe"
            arguments += ["-drive", f"{drive},{_SLOW}" if model == "slow" else drive]
            if model == "nvme":
                arguments += ["-device", f"nvme,serial=penstock{number},drive=drive{number}"]
        return arguments

    def _write_ssh_config(self, image: Image) -> None:
        self.ssh_config.write_text(
            f"""Host vm
    HostName 127.0.0.1
    Port {self.ports[22]}
    User root
    IdentityFile {image.key}
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    ControlMaster auto
    ControlPath {self._directory}/ssh
    ControlPersist yes
    # What one emulated processor computes fastest.
    KexAlgorithms curve25519-sha256
    ConnectTimeout 60
"""
        )

    def _stop(self) -> None:
        if self.ssh_config.exists():
            subprocess.run(
                ["ssh", "-F", str(self.ssh_config), "-O", "exit", "vm"], capture_output=True, check=False, timeout=30
            )
        self._kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _kill(self) -> None:
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
            self._qemu = None


class _Console:
    """Reads the serial line, so that QEMU never waits for a reader; knows when the guest says that it is ready."""

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
        self.ready.set()  # QEMU ended: nobody needs to wait for it any longer

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
