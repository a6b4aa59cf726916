"""The machine's image: Debian 12 with a kernel that has every cgroup v2 controller, built once and cached.

The cache's key is the hash of everything that went in, so an image is never stale and never rebuilt for nothing.
Only what our own pyproject.toml names is hashed, not what it resolves to: a newer release on PyPI does not rebuild.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.vm.host import find, require_tools, say

ROOT = Path(__file__).resolve().parents[2]
_HERE = Path(__file__).resolve().parent
_SUITE = "bookworm"
_PACKAGES = (
    "systemd",
    "systemd-sysv",
    "udev",
    "dbus",
    "procps",
    "dmsetup",
    "btrfs-progs",
    "fdisk",
    "systemd-oomd",
    "iproute2",
    "openssh-server",
    "python3",
    "python3-venv",
    "zstd",
    "linux-image-cloud-amd64",
)
#: Not published as wheels; pure Python, so a wheel built here fits there.
_SOURCE_ONLY = ("cgroupspy",)
#: Debian 12 has Python 3.11 and glibc 2.36.
_PIP_TARGET = (
    "--only-binary=:all:",
    "--python-version=3.11",
    "--implementation=cp",
    "--platform=manylinux2014_x86_64",
    "--platform=manylinux_2_17_x86_64",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_34_x86_64",
)
_DISK_SIZE = "4G"
_KEPT = 3


@dataclass(frozen=True)
class Image:
    """A built image; its files are never written to after the build."""

    directory: Path

    @property
    def disk(self) -> Path:
        """The root file system: raw, ext4, sparse."""
        return self.directory / "disk.img"

    @property
    def kernel(self) -> Path:
        """The kernel, which QEMU loads itself."""
        return self.directory / "kernel"

    @property
    def initrd(self) -> Path:
        """The initial file system: virtio and ext4, nothing else."""
        return self.directory / "initrd"

    @property
    def key(self) -> Path:
        """The private ssh key that opens root's and ``tester``'s account in the machine."""
        return self.directory / "key"


def requirements() -> list[str]:
    """What the project needs to run and to be tested, from pyproject.toml with its own extras expanded."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    found: set[str] = set()

    def expand(wanted: list[str]) -> None:
        for requirement in wanted:
            if own := re.fullmatch(rf"{project['name']}\[([\w, -]+)\]", requirement):
                for extra in own[1].split(","):
                    expand(project["optional-dependencies"][extra.strip()])
            else:
                found.add(requirement)

    expand([*project["dependencies"], f"{project['name']}[test]"])
    return sorted(found)


def cache_directory() -> Path:
    """Where images are kept; what else is kept is beside it."""
    return Path(os.environ.get("PENSTOCK_VM_CACHE") or Path.home() / ".cache/penstock/vm")


def ensure_image() -> Image:
    """The image for this checkout, built if the cache has none.

    Raises:
        UnavailableError: this host lacks what a build or a boot needs.
        subprocess.CalledProcessError: a step of the build failed; its output has been shown.
    """
    require_tools()
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    image = Image(cache / _fingerprint())
    with _locked(cache / "lock"):
        if not image.directory.exists():
            _build(image)
            _forget_others(cache, image)
    return image


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for text in (_SUITE, *_PACKAGES, *requirements()):
        digest.update(text.encode() + b"\n")
    for path in [Path(__file__), *sorted((_HERE / "guest").rglob("*"))]:
        if path.is_file():
            digest.update(path.relative_to(_HERE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process builds an image; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(image: Image) -> None:
    say(f"building the image into {image.directory} (once; a few minutes)")
    started = time.monotonic()
    # Not in the cache: an unprivileged build runs as another user, who may not enter somebody's home directory.
    with tempfile.TemporaryDirectory(prefix="penstock-vm-", dir="/var/tmp") as name:
        work = Path(name)
        work.chmod(0o711)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "penstock-vm", "-f", str(work / "key")])
        _fetch_wheels(work / "wheelhouse")
        _pack(work)
        _bootstrap(work)
        partial = image.directory.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for file in ("disk.img", "kernel", "initrd", "key"):
            run(["cp", "--sparse=always", str(work / file), str(partial / file)])
        partial.rename(image.directory)
    say(f"image built in {time.monotonic() - started:.0f} s")


def _fetch_wheels(wheelhouse: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wanted = requirements()
    source_only = [each for each in wanted if re.split(r"[^\w-]", each)[0] in _SOURCE_ONLY]
    run([*pip, "wheel", "--no-deps", "--use-pep517", f"--wheel-dir={wheelhouse}", *source_only])
    run([*pip, "download", *_PIP_TARGET, f"--find-links={wheelhouse}", f"--dest={wheelhouse}", *wanted])


def _pack(work: Path) -> None:
    """Everything of ours in the image, as one archive owned by root; and the files the build writes to."""
    texts = {
        "opt/wheelhouse/requirements.txt": "\n".join(requirements()),
        "root/.ssh/authorized_keys": (work / "key.pub").read_text(),
    }
    with tarfile.open(work / "ours.tar", "w") as tar:

        def owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            return member

        tar.add(_HERE / "guest", ".", filter=owned_by_root)
        tar.add(work / "wheelhouse", "opt/wheelhouse", filter=owned_by_root)
        for name, text in texts.items():
            member = owned_by_root(tarfile.TarInfo(name))
            member.mode, member.size = 0o600, len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    # Writable by whoever the build runs as; nobody else can name them, the directory cannot be listed.
    (work / "disk.img").touch()
    (work / "disk.img").chmod(0o666)


def _bootstrap(work: Path) -> None:
    # A plain bind mount leaves out /proc, /sys and /dev, which are mounted on the new root while hooks run.
    to_disk = (
        f'mkdir "$1.disk" && mount --bind "$1" "$1.disk" && '
        f'{find("mke2fs")} -q -F -t ext4 -O ^metadata_csum -L root -d "$1.disk" {work}/disk.img {_DISK_SIZE} && '
        f'umount "$1.disk" && rmdir "$1.disk"'
    )
    run(
        [
            find("mmdebstrap"),
            "--quiet",
            f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
            "--variant=minbase",
            "--format=null",
            f"--include={','.join(_PACKAGES)}",
            "--aptopt=Acquire::Languages none",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/locale/*",
            f"--customize-hook=tar-in {work}/ours.tar /",
            '--customize-hook=chroot "$1" /bin/sh -eu /root/customize.sh',
            f"--customize-hook=download /boot/vm-kernel {work}/kernel",
            f"--customize-hook=download /boot/vm-initrd {work}/initrd",
            '--customize-hook=rm -rf "$1"/boot/* "$1"/root/customize.sh',
            f"--customize-hook={to_disk}",
            _SUITE,
            "/dev/null",
        ]
    )


def _forget_others(cache: Path, image: Image) -> None:
    """Images take half a gigabyte each: the newest few stay, for those who go to and fro between branches."""
    images = sorted((each for each in cache.iterdir() if each.is_dir()), key=lambda each: each.stat().st_mtime)
    for directory in images[:-_KEPT]:
        if directory != image.directory:
            shutil.rmtree(directory, ignore_errors=True)


def run(command: list[str], stdout: IO[bytes] | None = None, cwd: Path = ROOT) -> None:
    """Run a step of a build. Its output is shown if it fails; ``stdout`` gets its output, where that is data.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout or subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        said = b"".join((each or b"")[-4000:] for each in (done.stdout, done.stderr)).decode(errors="replace")
        say(f"failed: {' '.join(command)}\n{said}")
        done.check_returncode()
