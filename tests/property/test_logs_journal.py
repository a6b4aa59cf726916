"""The messages sent follow systemd.io/JOURNAL_NATIVE_PROTOCOL: read by its rules, every fact is there, unchanged.

The reader is as strict as journald: names that it would drop, or a byte too many, fail.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock import logs

#: journal_field_valid(): A-Z, 0-9 and _, at most 64; none that begins with _ (the journal's own) or a digit.
_VALID = re.compile(rb"[A-Z][A-Z0-9_]{0,63}\Z")
TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("\n=\0\x1b")), max_size=60)
KEYS = st.one_of(st.from_regex(r"[a-z_]{1,20}", fullmatch=True), st.text(min_size=1, max_size=90))
VALUES = st.one_of(
    TEXTS, st.integers(), st.floats(), st.booleans(), st.none(), st.lists(TEXTS, max_size=3),
    st.dictionaries(TEXTS, st.integers(), max_size=2),
)  # fmt: skip
#: Facts that are sent otherwise than as a field of their own.
TOLD = {"event", "level", "exception", "stack"}


def fields(entry: bytes) -> list[tuple[str, str]]:
    """As journald reads it."""
    found = []
    at = 0
    while at < len(entry):
        end = entry.index(b"\n", at)
        name, equals, value = entry[at:end].partition(b"=")
        at = end + 1
        if not equals:
            (length,) = struct.unpack_from("<Q", entry, at)
            value = entry[at + 8 : at + 8 + length]
            at += 8 + length
            assert len(value) == length and entry[at : at + 1] == b"\n"
            at += 1
        assert _VALID.match(name), f"the journal drops {name!r}"
        found.append((name.decode(), value.decode()))
    return found


def as_text(value: Any) -> str:
    """Return a fact as text, as far as UTF-8 can encode it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="replace").decode()


@given(TEXTS, st.sampled_from(["debug", "info", "warning", "error", "critical", "?"]), st.dictionaries(KEYS, VALUES))
@example("kill", "info", {"a-b": 1, "a_b": 2})
@example("kill", "info", {"x" * 80: "long", "ß": "1", "": "2"})
def test_every_fact_comes_back(event: str, level: str, facts: dict[str, Any]) -> None:
    facts = {key: value for key, value in facts.items() if key not in TOLD}
    found = fields(logs.entry({"event": event, "level": level, **facts}))
    head, own = dict(found[:4]), found[4:]
    assert head["PENSTOCK_EVENT"] == as_text(event)
    assert head["MESSAGE"].startswith(as_text(event))
    assert head["PRIORITY"] in "23467" and head["SYSLOG_IDENTIFIER"] == "penstock"
    assert [value for _, value in own] == [as_text(value) for value in facts.values()]
    for (name, _), key in zip(own, facts, strict=True):
        plain = re.fullmatch("[a-z0-9_]{1,55}", key)
        assert name == f"PENSTOCK_{key.upper()}" if plain else name.startswith("PENSTOCK_")


@pytest.mark.parametrize("size", [10, 100_000, 300_000, 5_000_000])
def test_a_message_too_large_for_a_datagram_comes_as_a_sealed_file(size: int, tmp_path: Path) -> None:
    text = "line\n" * (size // 5)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.settimeout(30)
        logs.Journal(tmp_path / "socket").msg(logs.entry({"event": "dump", "text": text}))
        entry, passed = received(listening)
    assert dict(fields(entry))["PENSTOCK_TEXT"] == text
    assert passed == (size > 1_000_000) or 10 < size < 1_000_000  # in between the host decides on the size that fits


def received(listening: socket.socket) -> tuple[bytes, bool]:
    """An entry as journald takes it in, and whether it came as a file."""
    entry, passed, _, _ = socket.recv_fds(listening, 2**24, 4)
    if not passed:
        return entry, False
    assert not entry, "a file comes alone"
    [descriptor] = passed
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        assert seals == fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0), True
    finally:
        os.close(descriptor)


@settings(max_examples=20)
@given(st.lists(st.booleans(), min_size=1, max_size=6))
def test_a_journal_that_is_restarted_is_found_again(up: list[bool]) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patched:
        path, aside = Path(directory) / "socket", (Path(directory) / "stderr").open("w+")
        patched.setattr("sys.stderr", aside)
        with aside:
            taken = listened = 0
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as first:
                first.bind(str(path))
                journal = logs.Journal(path)
            for number, there in enumerate(up):
                path.unlink(missing_ok=True)
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
                    listening.settimeout(30)
                    if there:
                        listening.bind(str(path))
                    journal.msg(logs.entry({"event": f"said {number}"}))
                    if there:
                        listened += 1
                        taken += dict(fields(listening.recv(65536)))["PENSTOCK_EVENT"] == f"said {number}"
            aside.seek(0)
            assert taken == listened
            assert aside.read().count("PENSTOCK_EVENT=") == len(up) - listened, "nothing is lost"
