"""Build the kernel of machines in user mode from Debian's kernel source, and cache it.

Linux can be compiled as a program of its host (arch/um). It runs its processes' instructions on the host's own
processors; system calls and page faults cost ten times what they do natively. Debian's own build of it has neither PSI
nor cpusets, and one processor; Linux has several there since 6.19 (arch/um/kernel/smp.c), so the source is that of
Debian's unstable distribution. ``user_mode.config`` lists what is configured. Nothing is installed on the host but
compilers.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from tests.vm.host import KERNEL_BUILD_TOOLS, USER_MODE_TOOLS, UnavailableError, find, require_tools, say
from tests.vm.image import cache_directory, run

_SUITE = "sid"
_CONFIG = Path(__file__).with_name("user_mode.config")
#: Seven changes. Threads of one process take turns (arch/um/kernel/skas/mmu.c, the turnstile, a mutex): one that waits
#: must not spin, or it uses a processor for nothing. A process stays on the host's processor on which its kernel runs:
#: they wake each other at every system call, and waking another processor takes ten times as long. And a process of
#: more pieces than the host maps (vm.max_map_count; 256 MB where no page lies beside its neighbour) begins anew with
#: an empty address space of the host's: before, it repeated the same page fault without end (Linux 7.2). And events of
#: devices are read one at a time: before, one that came during another's handler was written over some that were not
#: handled yet, and the disk or the network stood still (docs/testing.md). And a processor that has disabled interrupts
#: notes those of other processors instead of blocking their signal: before, each spin_lock_irqsave was two system calls
#: of the host's. And the model of a slow disk, null_blk, has a parent as hardware has: an agent takes it for a disk.
#: And its processors share a cache by the scheduler's knowledge, as those of hosts do (CONFIG_SCHED_MC): before, a
#: process that woke was put beside one that ran, while another processor was idle or had work of cpu.idle alone.
_PATCH = Path(__file__).with_name("user_mode.patch")
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
    return hashlib.sha256(b"".join(each.read_bytes() for each in (Path(__file__), _CONFIG, _PATCH))).hexdigest()[:16]


def _build(kernel: Path) -> None:
    say(f"building the kernel of machines in user mode into {kernel.parent} (once; some minutes)")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-kernel-", dir="/var/tmp") as name:
        source = _unpacked(Path(name))
        run(["patch", "--strip=1", f"--input={_PATCH}"], cwd=source)
        make = ["make", "-s", "ARCH=um"]
        run([*make, "x86_64_defconfig"], cwd=source)
        run(["scripts/kconfig/merge_config.sh", "-m", ".config", str(_CONFIG)], cwd=source)
        run([*make, "olddefconfig"], cwd=source)
        _require_config(source / ".config")
        run([*make, f"-j{len(os.sched_getaffinity(0)) + 1}", "linux"], cwd=source)
        run(["strip", "linux"], cwd=source)
        kernel.parent.mkdir(exist_ok=True)
        partial = kernel.with_suffix(".partial")
        shutil.copy(source / "linux", partial)
        partial.rename(kernel)
    say(f"{source.name} built in {time.monotonic() - started:.0f} s")


def _unpacked(work: Path) -> Path:
    """Return the directory of the newest source package of the suite."""
    mode = "root" if os.geteuid() == 0 else "unshare"
    # A mirror may be older than its own promise to be fresh; its packages are signed all the same.
    fetch = [
        find("mmdebstrap"), "--quiet", '--aptopt=Acquire::Check-Valid-Until "false"', f"--mode={mode}",
        "--variant=extract", "--include=linux-source", "--format=directory", _SUITE, str(work / "debian"),
    ]  # fmt: skip
    run(fetch)
    archive = next((work / "debian/usr/src").glob("linux-source-*.tar.xz"))
    run(["tar", "-xf", str(archive)], cwd=work)
    return work / archive.name.removesuffix(".tar.xz")


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
