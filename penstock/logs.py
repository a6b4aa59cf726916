"""The daemons' logs: formatted on a terminal, fields in the journal under systemd, else one JSON object per line."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

_JOURNAL = Path("/run/systemd/journal/socket")
_MOST_NAME = 64  # journal-util.c: journal_field_valid
#: The errors of a datagram that is too large (sd_journal_sendv(3)).
_TOO_LARGE = frozenset({errno.EMSGSIZE, errno.ENOBUFS})
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
#: syslog(3)
_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}


def configure(level: str = "info") -> None:
    """Set structlog up for this process; called once by a daemon's command."""
    terminal, journal = sys.stderr.isatty(), _journal()
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if terminal:
        renderer = structlog.dev.ConsoleRenderer()
    elif journal is not None:
        renderer = _as_fields
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *([] if journal is not None else [structlog.processors.TimeStamper(fmt="iso", utc=True)]),
            structlog.processors.StackInfoRenderer(),
            *([] if terminal else [structlog.processors.format_exc_info]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: journal or Lines(),
        cache_logger_on_first_use=True,
    )


class Lines:
    """Standard error, one line per entry. Failed writes are ignored: a full disk must not stop the daemon."""

    def msg(self, line: str) -> None:
        """Write one line."""
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr, flush=True)  # noqa: T201

    debug = info = warning = warn = error = critical = exception = fatal = failure = log = msg


class Journal:
    """systemd's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): one datagram per entry.

    An entry that is too large for a datagram is sent as a sealed file in memory.
    """

    def __init__(self, path: Path) -> None:
        """Raise OSError if no process listens at the path."""
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
                probe.connect(self._path)
        except OSError:
            self._socket.close()
            raise

    def msg(self, entry: bytes) -> None:
        """Send an entry; if that fails, write it to standard error, which the journal also reads."""
        try:
            try:
                self._socket.sendto(entry, self._path)  # unconnected, so that it works after a restart of the journal
            except OSError as error:
                if error.errno not in _TOO_LARGE:
                    raise
                self._send_file(entry)
        except OSError:
            Lines().msg(entry.decode(errors="replace"))

    def _send_file(self, entry: bytes) -> None:
        descriptor = os.memfd_create("journal-entry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with os.fdopen(descriptor, "wb") as file:
            file.write(entry)
            file.flush()
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))
            self._socket.sendmsg([], [passed], 0, self._path)

    debug = info = warning = warn = error = critical = exception = fatal = failure = log = msg


def entry(event: Mapping[str, Any]) -> bytes:
    """Return an event in the journal's format: ``MESSAGE`` for people, and each of its facts as ``PENSTOCK_…``."""
    facts = {key: _text(value) for key, value in event.items() if key not in {"event", "level", "exception", "stack"}}
    message = " ".join([str(event.get("event", "")), *(f"{key}={text}" for key, text in facts.items())])
    for trace in ("stack", "exception"):
        if trace in event:
            message += f"\n{event[trace]}"
    fields = [
        ("MESSAGE", message),
        ("PRIORITY", str(_PRIORITIES.get(str(event.get("level", "info")), 6))),
        ("SYSLOG_IDENTIFIER", "penstock"),
        ("PENSTOCK_EVENT", str(event.get("event", ""))),
        *((_name(key), text) for key, text in facts.items()),
    ]
    return b"".join(_field(name, text.encode(errors="replace")) for name, text in fields)


def _name(key: str) -> str:
    """Return a valid field name; the journal drops others. Two keys may get the same name, as fields may repeat."""
    return f"PENSTOCK_{re.sub('[^A-Z0-9_]', '_', key.upper())}"[:_MOST_NAME]


def _field(name: str, value: bytes) -> bytes:
    if b"\n" in value:  # multi-line values need the form with a length
        return name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
    return name.encode() + b"=" + value + b"\n"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _as_fields(logger: object, method: str, event: Mapping[str, Any]) -> bytes:
    return entry(event)


def _journal() -> Journal | None:
    """Return the journal if standard error goes to it (``$JOURNAL_STREAM``), else None."""
    try:
        behind = os.fstat(sys.stderr.fileno())
        if os.environ.get("JOURNAL_STREAM") == f"{behind.st_dev}:{behind.st_ino}":
            return Journal(_JOURNAL)
    except (OSError, ValueError):
        return None
    return None
