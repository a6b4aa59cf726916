"""``python -m tests.vm``: a real kernel with every cgroup v2 controller, for tests and the demo.

Exit status: that of the command in the machine; 69 (EX_UNAVAILABLE) where this host cannot have the machine; 71
(EX_OSERR) if it would not boot.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType

from tests.vm import checkout, user_mode
from tests.vm.host import QEMU_TOOLS, TOOLS, USER_MODE_TOOLS, UnavailableError, find, require_tools, say
from tests.vm.image import ROOT, ensure_image
from tests.vm.machine import DRIVES, HTTP_PORTS, Machine
from tests.vm.remote import BootError, Remote
from tests.vm.user_mode import Network, UserModeMachine
from tests.vm.user_mode_kernel import ensure_kernel

UNAVAILABLE = 69
NO_BOOT = 71
_REPORT = "build/kernel-junit.xml"
#: Of a machine in user mode; as under QEMU.
_PROCESSORS = 2
#: tests/kernel/test_devices_bind.py builds its file systems on the first two; test_isolation.py keeps the third busy.
_TEST_DRIVES = ("ubd", "ubd", "slow")
_EMULATED_TEST_DRIVES = ("nvme", "virtio", "slow")


def main(argv: list[str]) -> int:
    """The command; returns its exit status."""
    parser = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown and arguments.do is not _test:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    arguments.drives = _drives_of(arguments)
    if not set(arguments.drives) <= (had := set(user_mode.DRIVES if arguments.user_mode else DRIVES)):
        where = "a machine in user mode" if arguments.user_mode else "a machine under QEMU"
        parser.error(f"--drives: {where} has {', '.join(sorted(had))}")
    arguments.pytest = unknown
    return status_of(lambda: arguments.do(arguments))


def status_of(use: Callable[[], int]) -> int:
    """Return the status of a command that uses a machine.

    A failure of the machine has a status of its own, and is reported in a line. A SIGTERM ends the command in order:
    the machine ends with it.
    """
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return use()
    except UnavailableError as error:
        say(f"no virtual machine on this host: {error}")
        return UNAVAILABLE
    except BootError as error:
        say(str(error))
        return NO_BOOT
    except subprocess.CalledProcessError as error:
        say(f"status {error.returncode} from {error.cmd[0]}")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.vm", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, do: object, summary: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(do=do)
        added.add_argument("--memory", type=int, default=2048, metavar="MIB", help="the machine's memory [2048]")
        added.add_argument(
            "--drives", type=_drives, default=(), metavar="MODEL,…",
            help=f"additional empty disks: {', '.join(DRIVES)}; in user mode: {', '.join(user_mode.DRIVES)}; none: ''",
        )  # fmt: skip
        return added

    build = command("build", _build, "build the image, unless the cache has it")
    shell = command("shell", _shell, "boot, and open a shell with the checkout installed")
    run = command("run", _run, "boot, install the checkout, run a command in it")
    run.add_argument(
        "--copy-out", type=_pair, action="append", default=[], metavar="REMOTE:LOCAL",
        help="bring a file or directory back afterwards; relative to the checkout on both sides",
    )  # fmt: skip
    run.add_argument(
        "--copy-in", type=_pair, action="append", default=[], metavar="LOCAL:REMOTE", help="likewise, before"
    )
    run.add_argument("command", nargs="+", metavar="-- CMD", help="the command and its arguments")
    test = command(
        "test", _test, f"run tests/kernel in the machine as root, with pytest's own arguments; report: {_REPORT}"
    )
    test.set_defaults(drives=None)
    for each in (run, test, shell, build):
        each.add_argument(
            "--user-mode",
            action="store_true",
            help="under user-mode Linux: computes as fast as this host",
        )
    return parser


def _drives(text: str) -> tuple[str, ...]:
    models = tuple(filter(None, text.split(",")))
    for model in models:
        if model not in (known := sorted({*DRIVES, *user_mode.DRIVES})):
            raise argparse.ArgumentTypeError(f"{model!r} is none of {', '.join(known)}")
    return models


def _drives_of(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the drives that were named, or those that the tests need."""
    if arguments.drives is not None:
        named: tuple[str, ...] = arguments.drives
        return named
    return _TEST_DRIVES if arguments.user_mode else _EMULATED_TEST_DRIVES


def _pair(text: str) -> tuple[str, str]:
    left, colon, right = text.partition(":")
    if not (left and colon and right):
        raise argparse.ArgumentTypeError(f"{text!r} is not FROM:TO")
    return left, right


def _build(arguments: argparse.Namespace) -> int:
    require_machine(user_mode=arguments.user_mode)
    say(f"image: {ensure_image().directory}")
    if arguments.user_mode:
        say(f"kernel: {ensure_kernel()}")
    return 0


def _shell(arguments: argparse.Namespace) -> int:
    with _prepared(arguments) as machine:
        forward(machine)
        return machine.shell()


def _run(arguments: argparse.Namespace) -> int:
    with _prepared(arguments) as machine:
        forward(machine)
        for local, remote in arguments.copy_in:
            machine.put(Path(local), _remote(remote))
        status = machine.stream(_in_checkout(arguments.command))
        for remote, local in arguments.copy_out:
            _bring_back(machine, remote, Path(local))
    return status


def _test(arguments: argparse.Namespace) -> int:
    extra: list[str] = arguments.pytest
    named = [each for each in extra if not each.startswith("-") and each.startswith("tests/")]
    # Under QEMU ten times the processor time of the host: a test's own limit is wider, too.
    command = ["python", "-m", "pytest", f"--junit-xml={_REPORT}", "--timeout=300", "--durations=20", *extra]
    if not named:
        command.append("tests/kernel")
    _compile_tests([*extra, *([] if named else ["tests/kernel"])])
    with _prepared(arguments) as machine:
        status = machine.stream(_in_checkout(command))
        _bring_back(machine, _REPORT, ROOT / _REPORT)
    return status


def _compile_tests(selected: list[str]) -> None:
    """Have pytest compile them on this host, for all machines to come: their errors are shown in the machine."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *selected]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)


@contextmanager
def _prepared(arguments: argparse.Namespace) -> Iterator[Remote]:
    """Start a machine with the checkout in it, and report how long that took."""
    require_machine(user_mode=arguments.user_mode)
    ensure_image()
    started = time.monotonic()
    make = _in_user_mode if arguments.user_mode else _emulated
    with checkout.machine_with_checkout(lambda: make(arguments)) as machine:
        say(f"booted, checkout installed in {time.monotonic() - started:.1f} s")
        yield machine


@contextmanager
def _in_user_mode(arguments: argparse.Namespace) -> Iterator[Remote]:
    with (
        Network() as network,
        UserModeMachine(
            network, 1, memory_mib=arguments.memory, processors=_PROCESSORS, drives=arguments.drives
        ) as machine,
    ):
        yield machine


def _emulated(arguments: argparse.Namespace) -> AbstractContextManager[Remote]:
    return Machine(memory_mib=arguments.memory, forward=(), drives=arguments.drives)


def require_machine(*, user_mode: bool) -> None:
    """Check, before anything is built, that the host can run a machine in user mode, or one under QEMU.

    Raises:
        UnavailableError: this host does not have it.
    """
    if user_mode:
        require_user_mode()
    else:
        require_tools({**TOOLS, **QEMU_TOOLS})


def require_user_mode() -> None:
    """Check, in a moment, the requirements of a machine in user mode that other machines do not have.

    Raises:
        UnavailableError: this host does not have it.
    """
    require_tools(USER_MODE_TOOLS)
    mapped = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = [find("unshare"), *mapped, "--net", "true"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UnavailableError(f"user mode: no network namespace can be made, run it as root: {done.stderr.strip()}")


def forward(machine: Remote) -> dict[int, int]:
    """Make the machine's HTTP ports on its loopback reachable on this host's, as long as it runs; report the addresses.

    By ssh, so that the servers in the machine need not listen beyond its loopback.
    """
    ports: dict[int, int] = {}
    for guest in HTTP_PORTS:
        with socket.create_server(("127.0.0.1", 0)) as free:
            host = free.getsockname()[1]
        command = ["ssh", "-F", str(machine.ssh_config), "-O", "forward"]
        done = subprocess.run(
            [*command, "-L", f"127.0.0.1:{host}:127.0.0.1:{guest}", "vm"], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            ports[guest] = host
        else:
            say(f"port {guest} of the machine is not forwarded: {done.stderr.strip()}")
    for guest, host in ports.items():
        say(f"http://127.0.0.1:{guest} in the machine is http://127.0.0.1:{host} here")
    return ports


def _in_checkout(command: list[str]) -> str:
    ci = f"CI={shlex.quote(os.environ['CI'])} " if os.environ.get("CI") else ""
    return (
        f"cd {checkout.REMOTE} && mkdir -p build && "
        f"env PATH={checkout.VENV}/bin:$PATH PYTHONUNBUFFERED=1 {ci}{shlex.join(command)}"
    )


def _remote(path: str) -> str:
    return path if path.startswith("/") else f"{checkout.REMOTE}/{path}"


def _bring_back(machine: Remote, remote: str, local: Path) -> None:
    """Copy the output files out. Files that the command did not write are missing; its own status shows why."""
    if machine.ssh(f"test -e {shlex.quote(_remote(remote))}", check=False).returncode == 0:
        machine.get(_remote(remote), local)
    else:
        say(f"{remote} is not there to be brought back")


def _terminated(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
