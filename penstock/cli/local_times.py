"""Formatting of times in commands' output, in local time."""

from __future__ import annotations

import re
import time
from datetime import datetime

_UTC = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def moment(at: float) -> str:
    """Return a Unix time in local time; without the date if it is today's."""
    then, today = datetime.fromtimestamp(at).astimezone(), datetime.fromtimestamp(time.time()).astimezone()
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def with_local_times(text: str) -> str:
    """Return a message of the master with its times, which it writes in UTC, in local time."""
    return _UTC.sub(_local, text)


def _local(found: re.Match[str]) -> str:
    try:
        return moment(datetime.fromisoformat(found[0]).timestamp())
    except (ValueError, OverflowError):
        return found[0]
