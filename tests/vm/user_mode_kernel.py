"""Build the kernel of machines in user mode from Debian's kernel source, and cache it.

Linux can be compiled as a program of its host (arch/um). Debian's own build of it has neither PSI nor cpusets and runs
on one processor; Linux runs on several since 6.19 (arch/um/kernel/smp.c), so the source is the newest in Debian 13's
backports. `user_mode.config` says what is configured. Nothing is installed on the host but compilers.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.vm.host import KERNEL_BUILD_TOOLS, USER_MODE_TOOLS, UnavailableError, require_tools, say
from tests.vm.image import cache_directory, run

_SUITE = "trixie-backports"
_MIRROR = "http://deb.debian.org/debian"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_CONFIG = Path(__file__).with_name("user_mode.config")
_KEPT = 2


def ensure_kernel() -> Path:
    """Return the kernel, a program of the host; build it if the cache has none (170 MB from Debian, some minutes).

    Raises:
        UnavailableError: this host lacks what is needed.
        subprocess.CalledProcessError: a step failed; its output has been shown.
    """
    require_tools(USER_MODE_TOOLS)
    cache = cache_directory()
    kernels = cache.with_name(f"{cache.name}-kernel")
    kernels.mkdir(parents=True, exist_ok=True)
    kernel = kernels / _fingerprint() / "linux"
    with (kernels / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kernel.exists():
            require_tools(KERNEL_BUILD_TOOLS)
            _build(kernel)
            _forget_others(kernels, kernel.parent)
    return kernel


def _fingerprint() -> str:
    return hashlib.sha256(Path(__file__).read_bytes() + _CONFIG.read_bytes()).hexdigest()[:16]


def _build(kernel: Path) -> None:
    say(f"building the kernel of machines in user mode into {kernel.parent} (once; some minutes)")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-kernel-", dir="/var/tmp") as name:
        work = Path(name)
        source = work / "source"
        source.mkdir()
        package = _download(work)
        unpack = (
            f"dpkg-deb --fsys-tarfile {package} | tar -xO --wildcards './usr/src/*.tar.xz' | "
            f"tar -xJ -C {source} --strip-components=1"
        )
        run(["bash", "-o", "pipefail", "-c", unpack])
        make = ["make", "-s", "-C", str(source), "ARCH=um", "LOCALVERSION=-penstock"]
        run([*make, "defconfig"])
        run(
            [
                str(source / "scripts/kconfig/merge_config.sh"),
                "-m",
                "-O",
                str(source),
                str(source / ".config"),
                str(_CONFIG),
            ]
        )
        run([*make, "olddefconfig"])
        _require_config(source / ".config")
        run([*make, f"-j{len(os.sched_getaffinity(0)) + 1}", "linux"])
        run(["strip", str(source / "linux")])
        kernel.parent.mkdir(exist_ok=True)
        run(["cp", str(source / "linux"), str(kernel.with_suffix(".partial"))])
        kernel.with_suffix(".partial").rename(kernel)
    say(f"kernel built from {package.name} in {time.monotonic() - started:.0f} s")


def _download(work: Path) -> Path:
    """Fetch the newest source package of the suite, by an apt whose lists and configuration are its own."""
    if not _KEYRING.exists():
        raise UnavailableError(f"{_KEYRING} is missing: apt-get install debian-archive-keyring")
    for directory in ("etc/preferences.d", "lists/partial", "archives/partial"):
        (work / "apt" / directory).mkdir(parents=True)
    sources = work / "apt/sources.list"
    sources.write_text(f"deb [arch=amd64 signed-by={_KEYRING}] {_MIRROR} {_SUITE} main\n")
    own = {
        "Dir::Etc": f"{work}/apt/etc", "Dir::Etc::SourceList": str(sources), "Dir::State::Lists": f"{work}/apt/lists",
        "Dir::State::Status": "/dev/null", "Dir::Cache": f"{work}/apt", "Acquire::Languages": "none",
        "APT::Architecture": "amd64", "APT::Sandbox::User": "", "Acquire::Retries": "3",
    }  # fmt: skip
    options = [part for key, value in own.items() for part in ("-o", f"{key}={value}")]
    run(["apt-get", *options, "-q", "update"])
    listed = subprocess.run(
        ["apt-cache", *options, "pkgnames", "linux-source-"], capture_output=True, text=True, check=True
    )
    names = re.findall(r"^linux-source-\d+\.\d+$", listed.stdout, re.MULTILINE)
    newest = max(names, key=lambda each: [int(part) for part in each.rpartition("-")[2].split(".")])
    run(["apt-get", *options, "-q", "download", newest], cwd=work)
    return next(work.glob("linux-source-*.deb"))


def _require_config(made: Path) -> None:
    """Refuse a configuration that lacks what was asked for: the tests that need it would be skipped."""
    have = set(made.read_text().splitlines())
    wanted = [
        line for line in _CONFIG.read_text().splitlines() if line.startswith("CONFIG_") and not line.endswith("=n")
    ]
    if missing := [line for line in wanted if line not in have]:
        raise UnavailableError(f"this kernel cannot be configured with {', '.join(missing)}")


def _forget_others(kernels: Path, kept: Path) -> None:
    """Keep the newest few: branches differ in their configuration."""
    known = sorted((each for each in kernels.iterdir() if each.is_dir()), key=lambda each: each.stat().st_mtime)
    for directory in known[:-_KEPT]:
        if directory != kept:
            shutil.rmtree(directory, ignore_errors=True)
