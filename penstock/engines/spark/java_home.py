"""The directory to be used as executors' ``JAVA_HOME``: it links to Java's own files, except for ``bin/java``."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from penstock.engines.spark.executor_command import BACKEND

#: Any other program (a driver, a Worker) is passed to Java at once, and so are executors if Penstock's interpreter is
#: gone. ``$JAVA_HOME`` is set to the real one, so that child processes do not find this script again.
_SCRIPT = """#!/bin/sh
# Made by `penstock spark-config`; run it again when Python or Java have moved.
JAVA_HOME={home}
export JAVA_HOME
case " $* " in
*" {backend} "*)
    [ -x {python} ] && exec {python} -I -m penstock.engines.spark.stand_in "$JAVA_HOME/bin/java" "$@"
    echo "penstock: no "{python}"; this executor runs outside of Penstock" >&2
    ;;
esac
exec "$JAVA_HOME/bin/java" "$@"
"""


def find_java() -> Path | None:
    """Return this host's JAVA_HOME: ``$JAVA_HOME``, else that of ``java`` on the PATH; none that :func:`make` made."""
    given = os.environ.get("JAVA_HOME")
    found = shutil.which("java")
    candidates = [Path(given)] if given else []
    candidates += [Path(found).resolve().parent.parent] if found else []
    return next((home for home in candidates if (home / "bin/java").exists() and not is_ours(home)), None)


def is_ours(home: Path) -> bool:
    """Whether :func:`make` created it."""
    with (home / "bin/java").open("rb") as program:
        return program.read(2) == b"#!" and b"penstock" in program.read(200)


def make(directory: Path, java_home: Path) -> None:
    """Create or replace the directory.

    Raises:
        OSError: it cannot be written there.
    """
    bin_directory = directory / "bin"
    bin_directory.mkdir(parents=True, exist_ok=True)
    script = _SCRIPT.format(
        home=shlex.quote(str(java_home)), backend=BACKEND, python=shlex.quote(sys.executable)
    )  # fmt: skip
    fresh = bin_directory / ".java.new"
    fresh.write_text(script, encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(bin_directory / "java")
    _link_rest(java_home, directory, but={"bin"})
    _link_rest(java_home / "bin", bin_directory, but={"java"})


def _link_rest(source: Path, directory: Path, but: set[str]) -> None:
    """Link to all other files of a Java home."""
    for entry in source.iterdir():
        link = directory / entry.name
        if entry.name in but or (link.exists() and not link.is_symlink()):
            continue
        link.unlink(missing_ok=True)
        link.symlink_to(entry)
