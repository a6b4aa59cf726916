"""``penstock place``."""

from __future__ import annotations

import sys
from pathlib import Path

from master.explain.recording import SnapshotError, read
from master.explain.replay import explained, text
from penstock.cli.arguments import Parser
from penstock.cli.errors import note
from penstock.cli.json_output import print_json


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit status: 2 for an invalid snapshot."""
    parser = Parser("place", "Explain a scheduling round over a recorded state, decision by decision.")
    parser.add_argument("snapshot", metavar="SNAPSHOT.json", help="the answer of a master's GET /snapshot; - is stdin")
    parser.add_argument("--json", action="store_true", help="everything, with each task's F on every node")
    options = parser.parse_args(argv)
    try:
        recording = read(_bytes(options.snapshot), options.snapshot)
    except SnapshotError as error:
        note("place", str(error))
        return 2
    said = explained(recording)
    if options.json:
        print_json(said, indent=1)
    else:
        print(text(said))  # noqa: T201
    return 0


def _bytes(name: str) -> bytes:
    """Raises: SnapshotError: the file cannot be read."""
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise SnapshotError(f"{name}: {error.strerror}") from None
