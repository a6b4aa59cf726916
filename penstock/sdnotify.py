"""The service manager's notification protocol (man sd_notify): readiness, stopping, watchdog."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    """Send ``READY=1``, ``STOPPING=1`` or ``WATCHDOG=1``; nothing where no service manager listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError:
            return  # the manager is not there any more: nothing depends on telling it


def watchdog_interval_s() -> float | None:
    """How often the manager wants to hear from us at least; None where it does not watch this process."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 if microseconds.isdigit() else None
