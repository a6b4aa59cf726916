"""The directory to be used as executors' ``JAVA_HOME``: it links to Java's own files, except for ``bin/java``."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from penstock.engines.spark.executor_command import BACKEND

#: Any other program (a driver, a Worker) is passed to Java at once, and so are executors if Penstock's interpreter is
#: gone. ``$JAVA_HOME`` is set to the real one, so that child processes do not find this script again. Links in the
#: interpreter's path are followed at the start: a stand-in stays in its environment while an upgrade changes them.
_SCRIPT = """#!/bin/sh
# Made by `penstock spark-config`; run it again when Python or Java have moved.
JAVA_HOME={home}
export JAVA_HOME
case " $* " in
*" {backend} "*)
    python="$(readlink -f {directory})"/{name}
    [ -x "$python" ] && exec "$python" -I -m penstock.engines.spark.stand_in "$JAVA_HOME/bin/java" "$@"
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


def is_free(directory: Path, java_home: Path) -> bool:
    """Whether :func:`make` may write there: it is not within the Java home, and no other program is replaced."""
    present = directory / "bin/java"
    return not directory.resolve().is_relative_to(java_home.resolve()) and (not present.exists() or is_ours(directory))


def make(directory: Path, java_home: Path) -> None:
    """Create or replace the directory.

    Raises:
        OSError: it cannot be written there.
    """
    bin_directory = directory / "bin"
    bin_directory.mkdir(parents=True, exist_ok=True)
    python = _python()
    script = _SCRIPT.format(
        home=shlex.quote(str(java_home)), backend=BACKEND, python=shlex.quote(str(python)),
        directory=shlex.quote(str(python.parent)), name=shlex.quote(python.name),
    )  # fmt: skip
    fresh = bin_directory / ".java.new"
    fresh.write_text(script, encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(bin_directory / "java")
    _link_rest(java_home, directory, but={"bin"})
    _link_rest(java_home / "bin", bin_directory, but={"java"})


def _python() -> Path:
    """Return this environment's interpreter, by the path at which the running command was found.

    An upgrade may make a new environment and remove this one: /usr/local/bin/penstock leads to /opt/penstock/venv, a
    link to the present environment (ansible/README.md).
    """
    command = Path(sys.argv[0]).absolute()
    while True:
        python = command.with_name("python")
        if python.exists() and python.parent.parent.resolve() == Path(sys.prefix).resolve():
            return python
        if not command.is_symlink():
            return Path(sys.executable)
        command = command.parent / command.readlink()


def _link_rest(source: Path, directory: Path, but: set[str]) -> None:
    """Link to all other files of a Java home."""
    for entry in source.iterdir():
        link = directory / entry.name
        if entry.name in but or (link.exists() and not link.is_symlink()):
            continue
        link.unlink(missing_ok=True)
        link.symlink_to(entry)
