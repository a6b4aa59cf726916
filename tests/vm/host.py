"""The requirements of the virtual machine on its host, and the end of child processes with the harness."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: The programs that every machine needs: program → the Debian package that contains it.
TOOLS = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "ssh": "openssh-client",
    "setpriv": "util-linux",
}
#: Only for machines under QEMU.
QEMU_TOOLS = {"qemu-system-x86_64": "qemu-system-x86"}
#: Only for machines in user mode.
USER_MODE_TOOLS = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "taskset": "util-linux",
    "unshare": "util-linux",
}
#: Only where their kernel is built.
KERNEL_BUILD_TOOLS = {
    "bc": "bc",
    "bison": "bison",
    "cc": "gcc",
    "flex": "flex",
    "make": "make",
    "mmdebstrap": "mmdebstrap",
    "patch": "patch",
    "strip": "binutils",
    "xz": "xz-utils",
}
#: Needed only where the image is built by a user other than root.
_UNPRIVILEGED = {"newuidmap": "uidmap"}
#: Debian keeps administrators' programs off an ordinary user's path.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


class UnavailableError(Exception):
    """This host cannot have the virtual machine; the message is one line with the missing part and the remedy."""


def find(program: str) -> str:
    """The path of a program that :func:`require_tools` vouched for.

    Raises:
        UnavailableError: it is not installed.
    """
    found = shutil.which(program, path=_PATH)
    if found is None:
        package = {**TOOLS, **QEMU_TOOLS, **USER_MODE_TOOLS, **KERNEL_BUILD_TOOLS}.get(program, program)
        raise UnavailableError(f"{program} is missing: apt-get install {package}")
    return found


def require_tools(tools: Mapping[str, str] = TOOLS) -> None:
    """Have every program that is needed; root on Debian or Ubuntu gets what is missing installed.

    Raises:
        UnavailableError: something is missing and could not be installed.
    """
    if platform.machine() != "x86_64":
        raise UnavailableError(f"the virtual machine is built for x86_64, this host is {platform.machine()}")
    needed = {**tools, **({} if os.geteuid() == 0 else _UNPRIVILEGED)}
    missing = _missing(needed)
    if missing and os.geteuid() == 0 and Path("/etc/debian_version").exists():
        _apt_install([needed[program] for program in missing])
        missing = _missing(needed)
    if missing:
        packages = " ".join(sorted({needed[program] for program in missing}))
        raise UnavailableError(f"{', '.join(missing)} missing; as root: apt-get install {packages}")


def _missing(needed: Mapping[str, str]) -> list[str]:
    return [program for program in needed if shutil.which(program, path=_PATH) is None]


def _apt_install(packages: list[str]) -> None:
    say(f"installing {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *command], env=environment, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise UnavailableError(f"apt-get {command[0]} failed with status {done.returncode}")


def dying_with_us(command: list[str]) -> list[str]:
    """The command, killed by the kernel when this process dies, however it dies (PR_SET_PDEATHSIG)."""
    return [find("setpriv"), "--pdeathsig", "KILL", *command]


def say(text: str) -> None:
    """Print one line for the person who watches; standard output belongs to the command in the machine."""
    print(f"vm: {text}", file=sys.stderr, flush=True)
