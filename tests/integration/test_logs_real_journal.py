"""Our entries in systemd's own journal: a journald in a mount namespace of its own.

It has /run and /var/log to itself there, so it is no rival of one that runs.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

JOURNALD = Path("/lib/systemd/systemd-journald")
NAMESPACE = "penstock-test"
SOCKET = f"/run/systemd/journal.{NAMESPACE}/socket"
LARGE = 5_000_000
FACTS: dict[str, Any] = {
    "event": "kill", "level": "warning", "container": "c-1", "why": "2\nlines", "ünder-way": True, "x" * 80: "long",
    "a-b": 1, "a_b": "tab\tand ünicode", "empty": "",
}  # fmt: skip


@pytest.mark.skipif(
    os.geteuid() != 0 or not JOURNALD.exists() or not Path("/etc/machine-id").exists() or not shutil.which("unshare"),
    reason="needs root, systemd-journald, /etc/machine-id and unshare",
)
def test_the_journal_has_every_fact(tmp_path: Path) -> None:
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, str(tmp_path / "kept")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "cannot mount" in done.stderr:
        pytest.skip(f"elsewhere: no mounts of our own here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    entries = [json.loads(line) for line in (tmp_path / "kept").read_text().splitlines()]
    small, large = (entry for entry in entries if entry.get("SYSLOG_IDENTIFIER") == "penstock")
    ours = {name: value for name, value in small.items() if name.startswith("PENSTOCK_")}
    assert ours == {
        "PENSTOCK_EVENT": "kill", "PENSTOCK_CONTAINER": "c-1", "PENSTOCK_WHY": "2\nlines", "PENSTOCK__NDER_WAY": "true",
        f"PENSTOCK_{'X' * 55}": "long", "PENSTOCK_A_B": ["1", "tab\tand ünicode"], "PENSTOCK_EMPTY": "",
    }  # fmt: skip
    assert small["PRIORITY"] == "4"
    assert small["MESSAGE"].startswith("kill container=c-1 why=2\nlines ")
    assert large["PENSTOCK_TEXT"] == "line\n" * (LARGE // 5), "more than a datagram holds"


def in_namespace(kept: str) -> None:
    """Start it, log something, and write its entries: one JSON object a line."""
    for place in ("/run", "/var/log"):
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=False).returncode != 0:
            sys.exit("cannot mount")
    for place in ("/run/systemd/journal", "/run/log/journal"):
        Path(place).mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind("/run/ready")
        ready.settimeout(60)
        journald = subprocess.Popen([JOURNALD, NAMESPACE], env={**os.environ, "NOTIFY_SOCKET": "/run/ready"})
        try:
            while b"READY=1" not in ready.recv(4096):
                pass
            _say()
            ask = ["journalctl", f"--namespace={NAMESPACE}"]
            subprocess.run([*ask, "--sync"], check=True)
            with Path(kept).open("w") as file:
                subprocess.run([*ask, "-o", "json", "--all", "--no-pager"], stdout=file, check=True)
        finally:
            journald.terminate()
            journald.wait(30)


def _say() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from penstock import logs

    journal = logs.Journal(Path(SOCKET))
    journal.msg(logs.entry(FACTS))
    journal.msg(logs.entry({"event": "dump", "text": "line\n" * (LARGE // 5)}))


if __name__ == "__main__":
    in_namespace(sys.argv[1])
