"""The files that the jobs read, on a host: made once, and kept. The machine's image has its own (``layer.py``)."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.mix import text
from bench.mix.layer import SOURCE, TEXT_BYTES, TPCH_PARTS, TPCH_SCALE
from bench.tpch import data as tpch

TEXT, TABLES, PROGRAM = "text", "tpch", "source"
#: The name of the directory in which one of them is made begins so.
MAKING = "penstock-mix-making-"
_APT = Path("/etc/apt")


def prepare(directory: Path, say: Callable[[str], None]) -> None:
    """Make the missing parts, and report them; each part is there as a whole, or not at all.

    Raises:
        subprocess.CalledProcessError: a program failed; its message is on standard error.
        OSError: the directory cannot be written to.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, make in {TEXT: _text, TABLES: _tables, PROGRAM: _program}.items():
        if not (directory / name).exists():
            say(f"preparing {directory / name} (once)")
            with tempfile.TemporaryDirectory(prefix=MAKING, dir=directory) as scratch:
                make(Path(scratch)).rename(directory / name)


def _text(scratch: Path) -> Path:
    text.write(scratch / TEXT, TEXT_BYTES)
    return scratch / TEXT


def _tables(scratch: Path) -> Path:
    return tpch.prepare(TPCH_SCALE, TPCH_PARTS, scratch)


def _program(scratch: Path) -> Path:
    """Get the sources of a Debian package, by lists of apt's own: the host's lists have no sources, and stay so."""
    lists, unpacked = scratch / "lists", scratch / PROGRAM
    for each in (lists, unpacked, scratch / "state/partial", scratch / "cache/archives/partial"):
        each.mkdir(parents=True)
    for file in (_APT / "sources.list", *sorted((_APT / "sources.list.d").glob("*"))):
        if file.suffix in {".list", ".sources"} and file.exists():
            (lists / file.name).write_text(of_sources(file.read_text(encoding="utf-8")), encoding="utf-8")
    settings = {
        "Dir::Etc::SourceList": "/dev/null", "Dir::Etc::SourceParts": lists, "Dir::State::Lists": scratch / "state",
        "Dir::Cache": scratch / "cache", "APT::Sandbox::User": "root",
    }  # fmt: skip
    apt = ["apt-get", "-qq", *(part for key, value in settings.items() for part in ("-o", f"{key}={value}"))]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "source", "--download-only", SOURCE], cwd=scratch, check=True)
    [archive] = scratch.glob(f"{SOURCE}_*.orig.tar.*[!c]")
    unpack = ["tar", "--no-same-owner", "--strip-components=1", "-C", str(unpacked), "-xf", str(archive)]
    subprocess.run(unpack, check=True)
    return unpacked


def of_sources(lists: str) -> str:
    """Return apt's list of package sources, changed so that it reads their sources; both formats of sources.list(5)."""
    with_sources = re.sub(r"^deb(?=\s)", "deb-src", lists, flags=re.MULTILINE)
    return re.sub(r"^Types:.*$", "Types: deb-src", with_sources, flags=re.MULTILINE | re.IGNORECASE)
