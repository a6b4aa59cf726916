"""Bring this checkout into the machine and make it importable there: without network, without pip, in a second."""

from __future__ import annotations

import compileall
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO

from tests.vm.host import say
from tests.vm.image import ROOT
from tests.vm.remote import BootError, Remote

#: Where the checkout is in the machine, and the Python that has everything it needs.
REMOTE = "/root/penstock"
VENV = "/opt/venv"
#: A second or two in user mode, up to twenty under QEMU on a busy host.
_INSTALL_TIMEOUT_S = 90.0
_PYTHON = (3, 11)
_SITE = f"{VENV}/lib/python{'.'.join(map(str, _PYTHON))}/site-packages"
#: In the names of its byte code.
_TAG = f"cpython-{''.join(map(str, _PYTHON))}"
#: The packages that programs in the machine import.
_IMPORTED = {"agent", "bench", "demo", "master", "penstock", "simulator", "tests"}


def build_wheel(directory: Path) -> Path:
    """The project's wheel, built from this checkout.

    Raises:
        subprocess.CalledProcessError: the build failed; its output has been shown.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "wheel", "--no-deps",
         "--no-build-isolation", f"--wheel-dir={directory}", str(ROOT)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        say(f"the wheel cannot be built:\n{done.stdout}{done.stderr}")
        done.check_returncode()
    return next(directory.glob("penstock-*.whl"))


@contextmanager
def machine_with_checkout(make: Callable[[], AbstractContextManager[Remote]]) -> Iterator[Remote]:
    """Start a machine with the checkout in it. If it stalls during the copy, a second one replaces it, once.

    Seen with one machine in user mode of several hundred, whose kernel lost interrupts, as it is not known to do any
    more (docs/benchmarks/lost-events.md).

    Raises:
        BootError: the second one did not come up, or stalled, too.
    """
    with ExitStack() as stack:
        machine = stack.enter_context(make())
        try:
            install(machine)
        except BootError as error:
            stack.close()
            say(f"{error}\nvm: booting another one")
            machine = stack.enter_context(make())
            install(machine)
        yield machine


def install(machine: Remote) -> None:
    """Copy the checkout to :data:`REMOTE` and install it, editable, into the machine's venv.

    Raises:
        BootError: the machine stalls.
    """
    with tempfile.TemporaryFile() as archive:
        pack(archive)
        archive.seek(0)
        try:
            machine.ssh("tar -C / -xzf -", stdin=archive, timeout_s=_INSTALL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise BootError(
                f"the machine did not take the checkout within {_INSTALL_TIMEOUT_S:.0f} s; its console:\n"
                f"{machine.standing()}"
            ) from None


def pack(archive: IO[bytes]) -> None:
    """Write an archive (tar, gzip) that installs this checkout where it is unpacked in a machine's root."""
    files = _files()
    with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
        for name in [*files, *_compiled(files)]:
            tar.add(ROOT / name, f"{REMOTE}/{name}", recursive=False, filter=_owned_by_root)
        _add_installation(tar)


def _files() -> list[str]:
    """Return the files that git tracks, or would track if they were added, as they are in the working tree."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = sorted({name for name in listed.stdout.split("\0") if name})
    return [name for name in names if (ROOT / name).is_symlink() or (ROOT / name).is_file()]


def _compiled(files: list[str]) -> Iterator[str]:
    """Compile the modules, which takes the machine's Python a minute under QEMU; none where this host's Python is
    another version.

    Tests are compiled by pytest; byte code that it left here is copied.
    """
    if sys.version_info[:2] != _PYTHON:
        return
    for name in files:
        path = Path(name)
        if path.suffix != ".py" or path.parts[0] not in _IMPORTED:
            continue
        if not path.name.startswith(("test_", "conftest.")):
            compileall.compile_file(ROOT / name, quiet=2)
        # It counts while the source has the time and the size that are written in it, which the archive keeps.
        for found in (ROOT / path.parent / "__pycache__").glob(f"{path.stem}.{_TAG}*.pyc"):
            yield str(found.relative_to(ROOT))


def _add_installation(tar: tarfile.TarFile) -> None:
    """Add the files that pip writes for an editable install: the metadata, the path, the commands."""
    with tempfile.TemporaryDirectory() as name, zipfile.ZipFile(build_wheel(Path(name))) as wheel:
        metadata = {entry: wheel.read(entry) for entry in wheel.namelist() if ".dist-info/" in entry}
    for entry, content in metadata.items():
        _add(tar, f"{_SITE}/{entry}", content)
        if entry.endswith("/entry_points.txt"):
            for command, target in _commands(content.decode()).items():
                _add(tar, f"{VENV}/bin/{command}", _script(target).encode(), mode=0o755)
    _add(tar, f"{_SITE}/penstock-checkout.pth", REMOTE.encode())


def _commands(entry_points: str) -> dict[str, str]:
    parser = ConfigParser()
    parser.optionxform = str  # type: ignore[method-assign, assignment]  # names are case-sensitive
    parser.read_string(entry_points)
    return dict(parser["console_scripts"]) if parser.has_section("console_scripts") else {}


def _script(target: str) -> str:
    module, _, function = target.partition(":")
    return f"#!{VENV}/bin/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"


def _add(tar: tarfile.TarFile, path: str, content: bytes, *, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(path)
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member
