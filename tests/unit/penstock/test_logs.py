"""Under systemd each fact of an event is a field of the journal's entry."""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from penstock import logs


def fields(datagram: bytes) -> dict[str, str]:
    """As journald reads it."""
    found = {}
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack_from("<Q", rest)
            value, rest = rest[8 : 8 + length], rest[8 + length + 1 :]
        found[name.decode()], datagram = value.decode(), rest
    return found


def test_the_parts_of_an_entry() -> None:
    said = {"event": "kill", "level": "warning", "container": "c-1", "why": "2\nlines", "size": 3, "ünder-way": True}
    assert fields(logs.entry(said)) == {
        "MESSAGE": "kill container=c-1 why=2\nlines size=3 ünder-way=true",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "penstock",
        "PENSTOCK_EVENT": "kill",
        "PENSTOCK_CONTAINER": "c-1",
        "PENSTOCK_WHY": "2\nlines",
        "PENSTOCK_SIZE": "3",
        "PENSTOCK__NDER_WAY": "true",
    }


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket at the journal's address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.settimeout(30)
        yield listening


@contextmanager
def connected(tmp_path: Path, stream: str = "") -> Iterator[Path]:
    """Our standard error goes there; ``stream`` is another one that systemd has passed."""
    with pytest.MonkeyPatch.context() as monkeypatch, (tmp_path / "stderr").open("w") as stderr:
        behind = os.fstat(stderr.fileno())
        monkeypatch.setattr(logs, "_JOURNAL", tmp_path / "socket")
        monkeypatch.setattr("sys.stderr", stderr)
        monkeypatch.setenv("JOURNAL_STREAM", stream or f"{behind.st_dev}:{behind.st_ino}")
        before = structlog.get_config()
        try:
            yield tmp_path / "stderr"
        finally:
            structlog.configure(**before)


def test_events_go_to_the_journal_if_standard_error_does(journal: socket.socket, tmp_path: Path) -> None:
    with connected(tmp_path):
        logs.configure()
        structlog.get_logger().info("container ended", container="c-1", reason=None)
        entry = fields(journal.recv(65536))
        assert entry["MESSAGE"] == "container ended container=c-1 reason=null"
        assert (entry["PENSTOCK_CONTAINER"], entry["PRIORITY"]) == ("c-1", "6")
        try:
            raise ValueError("out of it")
        except ValueError as error:
            structlog.get_logger().error("a round failed", exc_info=error)
        entry = fields(journal.recv(65536))
        assert entry["PRIORITY"] == "3" and "ValueError: out of it" in entry["MESSAGE"]
        structlog.get_logger().debug("nobody asked")
        structlog.get_logger().warning("next")
        assert fields(journal.recv(65536))["PENSTOCK_EVENT"] == "next"


def test_entries_that_the_journal_does_not_take_are_not_lost(journal: socket.socket, tmp_path: Path) -> None:
    with connected(tmp_path) as stderr:
        taken = logs.Journal(tmp_path / "socket")
        journal.close()
        taken.msg(logs.entry({"event": "still said"}))
        assert "MESSAGE=still said" in stderr.read_text()


def test_elsewhere_lines_are_json(tmp_path: Path) -> None:
    with connected(tmp_path, stream="1:2") as stderr:
        logs.configure()
        structlog.get_logger().info("said", container="c-1")
        line = json.loads(stderr.read_text())
        assert (line["event"], line["container"], line["level"]) == ("said", "c-1", "info")


def test_a_full_disk_ends_no_work(tmp_path: Path) -> None:
    """Files take so many bytes, and the log is one."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    with connected(tmp_path, stream="1:2") as stderr:
        logs.configure()
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, most[1]))
        try:
            for _ in range(3):
                structlog.get_logger().info("more than there is room for")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, most)
        structlog.get_logger().info("room again")
        assert "room again" in stderr.read_text()
