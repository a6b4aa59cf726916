"""The benchmark's image: the tests' image with compilers, Slurm, DuckDB, Dask and input files added. Built once.

The tests' own image stays as small as it is. The benchmark's image is cached beside it, under the hash of its
ingredients.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.mix import text
from bench.tpch import data as tpch
from tests.vm.host import UnavailableError, find, say
from tests.vm.image import Image, cache_directory, ensure_image, run

#: Where the machine has the input files.
INPUT = Path("/opt/mix")
#: Debian packages: a compiler, a compressor, a downloader, and Slurm with its authentication service.
PACKAGES = ("gcc", "libc6-dev", "make", "xz-utils", "slurmctld", "slurmd", "slurm-client", "munge")
#: Compiled by jobs: Debian's source package.
SOURCE = "lua5.4"
WHEELS = ("duckdb>=1.0", "dask[dataframe]>=2024.8", "distributed>=2024.8")
TPCH_SCALE, TPCH_PARTS = 0.1, 2
TEXT_BYTES = 64 << 20
_DISK_SIZE = "8G"
_STATUS = Path("/var/lib/dpkg/status")
#: Debian 12 has Python 3.11 and glibc 2.36.
_PIP_TARGET = (
    "--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--platform=manylinux2014_x86_64",
    "--platform=manylinux_2_17_x86_64", "--platform=manylinux_2_28_x86_64", "--platform=manylinux_2_34_x86_64",
)  # fmt: skip
#: Runs in the image's root, in a mount namespace of its own.
_INSTALL = f"""
set -eu
root=$1
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
cp /etc/resolv.conf "$root/etc/resolv.conf"
printf '#!/bin/sh\\nexit 101\\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
exec chroot "$root" /bin/sh -eu -c '
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
sed "s/^deb /deb-src /" /etc/apt/sources.list >/etc/apt/sources.list.d/source.list
apt-get -q update
apt-get -q -y --no-install-recommends install {" ".join(PACKAGES)}
systemctl --quiet disable munge slurmctld slurmd
cd {INPUT}
apt-get -q source --download-only {SOURCE}
mkdir source
tar -C source --strip-components=1 -xf {SOURCE}_*.orig.tar.*
rm -f {SOURCE}_* /etc/apt/sources.list.d/source.list /usr/sbin/policy-rc.d /etc/resolv.conf
/opt/venv/bin/pip install --quiet --disable-pip-version-check --no-index --find-links /opt/mix-wheels {{wheels}}
rm -rf /opt/mix-wheels /var/lib/apt/lists/* /var/cache/apt/*
chmod -R a+rX {INPUT}
'
"""


def ensure() -> Image:
    """Return the benchmark's image; build it if the cache has none (some minutes).

    Raises:
        UnavailableError: this host cannot build it.
        subprocess.CalledProcessError: a step of the build failed; its output has been shown.
    """
    base = ensure_image()
    cache = cache_directory()
    cache = cache.with_name(f"{cache.name}-mix")
    made = Image(cache / _fingerprint(base))
    if not made.directory.exists():
        if os.geteuid() != 0:
            raise UnavailableError("the image of bench-mix is built by root only")
        say(f"building the image of bench-mix into {made.directory} (once; some minutes)")
        started = time.monotonic()
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="partial-", dir=cache) as name:
            _build(base, Path(name))
            (Path(name) / "image").rename(made.directory)
        for old in cache.iterdir():
            if old != made.directory:
                shutil.rmtree(old, ignore_errors=True)
        say(f"image built in {time.monotonic() - started:.0f} s")
    return made


def _fingerprint(base: Image) -> str:
    digest = hashlib.sha256(base.directory.name.encode())
    digest.update(repr((PACKAGES, SOURCE, WHEELS, TPCH_SCALE, TPCH_PARTS, TEXT_BYTES, _DISK_SIZE, _INSTALL)).encode())
    digest.update(Path(text.__file__).read_bytes())
    return digest.hexdigest()[:16]


def _build(base: Image, work: Path) -> None:
    root, made = work / "root", Image(work / "image")
    root.mkdir()
    made.directory.mkdir()
    run([find("debugfs"), "-R", f"rdump / {root}", str(base.disk)])
    inputs = root / INPUT.relative_to("/")
    inputs.mkdir(parents=True)
    text.write(inputs / "text", TEXT_BYTES)
    shutil.copytree(tpch.prepare(TPCH_SCALE, TPCH_PARTS), inputs / "tpch")
    wheels = root / "opt/mix-wheels"
    run([sys.executable, "-m", "pip", "--quiet", "download", *_PIP_TARGET, f"--dest={wheels}", *WHEELS])
    quoted = " ".join(f'"{each}"' for each in WHEELS)
    run([find("unshare"), "--mount", "sh", "-c", _INSTALL.replace("{wheels}", quoted), "sh", str(root)])
    shutil.copy2(base.key, made.key)
    run([find("mke2fs"), "-q", "-F", "-t", "ext4", "-O", "^metadata_csum", "-L", "root", "-d", str(root),
         str(made.disk), _DISK_SIZE])  # fmt: skip


def versions(image: Image) -> dict[str, str]:
    """Return the versions of the image's Debian packages that the benchmark uses."""
    done = subprocess.run(
        [find("debugfs"), "-R", f"cat {_STATUS}", str(image.disk)], capture_output=True, text=True, check=True
    )
    return _versions(done.stdout)


def versions_here() -> dict[str, str]:
    """Return the versions of this host's Debian packages that the benchmark uses; none on another system."""
    return _versions(_STATUS.read_text(encoding="utf-8")) if _STATUS.exists() else {}


def _versions(status: str) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in status.splitlines():
        key, _, value = line.partition(": ")
        if key == "Package":
            name = value
        elif key == "Version" and name in PACKAGES:
            found[name] = value
    return found
