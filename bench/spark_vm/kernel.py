"""The kernel of the benchmark's machine: Linux, built to run as a process of the host (arch/um). Built once.

Under QEMU without KVM processors are emulated, and Java takes ten to thirty times as long; what is left for executors
beside drivers and daemons is too little to be divided (README.md). A user-mode kernel runs its processes' instructions
on the host's own processors; system calls and page faults cost ten times what they do natively, 12 and 20 µs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.vm.host import UnavailableError, find, say
from tests.vm.image import cache_directory

_CONFIG = Path(__file__).with_name("kernel.config")
#: arch/um has several processors from Linux 6.19 on; Debian's own user-mode-linux is built for one.
_SUITE = "sid"
_NEEDED = {
    "make": "make",
    "gcc": "gcc",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "xz": "xz-utils",
    "patch": "patch",
}
#: Two changes. Threads of one process take turns (arch/um/kernel/skas/mmu.c, the turnstile, a mutex); one that waits
#: for its turn would spin: two processors would be used, and one get on. And a process stays on the processor of the
#: host that its kernel is on (README.md).
_PATCH = Path(__file__).with_name("kernel.patch")


def ensure() -> Path:
    """The kernel, an executable; built if the cache has none: 165 MB from Debian, then six minutes on two processors.

    Raises:
        UnavailableError: a program is missing.
        subprocess.CalledProcessError: a step of the build failed; its output has been shown.
    """
    base = cache_directory()
    cache = base.with_name(f"{base.name}-user-mode")
    made = cache / _fingerprint() / "linux"
    if not made.exists():
        missing = [package for program, package in _NEEDED.items() if shutil.which(program) is None]
        if missing:
            raise UnavailableError(f"for the kernel, as root: apt-get install {' '.join(missing)}")
        say(f"building a kernel into {made.parent} (once; some six minutes)")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="partial-", dir=cache) as name:
            built = _build(Path(name))
            made.parent.mkdir(exist_ok=True)
            built.rename(made)
    return made


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for file in (_CONFIG, _PATCH, Path(__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _build(work: Path) -> Path:
    mode = "root" if os.geteuid() == 0 else "unshare"
    # A mirror may be older than its own promise to be fresh; what it has is signed all the same.
    _run(
        work, find("mmdebstrap"), "--quiet", '--aptopt=Acquire::Check-Valid-Until "false"', f"--mode={mode}",
        "--variant=extract", "--include=linux-source", "--format=directory", _SUITE, str(work / "debian"),
    )  # fmt: skip
    archive = next((work / "debian/usr/src").glob("linux-source-*.tar.xz"))
    _run(work, "tar", "-xf", str(archive))
    source = work / archive.name.removesuffix(".tar.xz")
    for step in (
        ("patch", "--strip=1", f"--input={_PATCH}"),
        ("make", "ARCH=um", "x86_64_defconfig"),
        ("scripts/kconfig/merge_config.sh", "-m", ".config", str(_CONFIG)),
        ("make", "ARCH=um", "olddefconfig"),
        ("make", "ARCH=um", f"-j{os.cpu_count()}", "linux"),
    ):
        _run(source, *step)
    return source / "linux"


def _run(directory: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        say(f"failed: {' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        done.check_returncode()
