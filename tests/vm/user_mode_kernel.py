"""The kernel of machines in user mode: Debian 13's user-mode-linux, with the C library that it is linked to.

Not Debian 12's (6.1), in which a process takes twice as long to start (measured: docs/testing.md). Extracted once and
cached; nothing of it is installed on the host.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.vm.host import USER_MODE_TOOLS, find, require_tools, say
from tests.vm.image import cache_directory, run

_SUITE = "trixie"
_PACKAGES = ("user-mode-linux", "libc6")
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_MODULES = "usr/lib/uml/modules"
_LOADER = f"{_LIBRARIES}/ld-linux-x86-64.so.2"
_KERNEL = "usr/bin/linux.uml"
_WANTED = (f"{_MODULES}/", _KERNEL, _LOADER, f"{_LIBRARIES}/libc.so.6")


@dataclass(frozen=True)
class UserModeKernel:
    """What was extracted."""

    directory: Path

    @property
    def executable(self) -> Path:
        """Linux, as a program of the host."""
        return self.directory / _KERNEL

    @property
    def modules(self) -> Path:
        """Its modules, as /lib/modules has them."""
        return self.directory / _MODULES


def ensure_kernel() -> UserModeKernel:
    """The kernel, fetched if the cache has none: 40 MB from Debian, a quarter of a minute.

    Raises:
        UnavailableError: this host lacks what is needed.
        subprocess.CalledProcessError: a step failed; its output has been shown.
    """
    require_tools(USER_MODE_TOOLS)
    cache = cache_directory()
    kernel = UserModeKernel(cache.with_name(f"{cache.name}-kernel") / _fingerprint())
    if not kernel.directory.exists():
        say(f"fetching the kernel of machines in user mode into {kernel.directory} (once)")
        kernel.directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="partial-", dir=kernel.directory.parent) as name:
            made = Path(name) / "made"
            _extract(Path(name), made)
            _link(made, kernel.directory)
            if not kernel.directory.exists():  # another process may have been quicker
                made.rename(kernel.directory)
    return kernel


def _fingerprint() -> str:
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def _extract(work: Path, made: Path) -> None:
    archive = work / "debian.tar"
    with archive.open("wb") as file:  # not by its name: who unpacks it is another user, where we are not root
        run(
            [
                find("mmdebstrap"), "--quiet", f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
                "--variant=extract", f"--include={','.join(_PACKAGES)}", "--aptopt=Acquire::Languages none",
                "--format=tar", _SUITE, "-",
            ],
            stdout=file,
        )  # fmt: skip
    with tarfile.open(archive) as tar:
        wanted = [each for each in tar if each.name.removeprefix("./").startswith(_WANTED)]
        tar.extractall(made, wanted, filter="data")


def _link(made: Path, final: Path) -> None:
    """To the library beside it. Not by calling its loader: then its memory would begin where the loader's ends."""
    loader, libraries = str(final / _LOADER), str(final / _LIBRARIES)
    run([find("patchelf"), "--set-interpreter", loader, "--set-rpath", libraries, str(made / _KERNEL)])
