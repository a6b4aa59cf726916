"""What the agent's process asks of the system for itself: to be the only one, descriptors, a watchdog."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
from pathlib import Path

from penstock import sdnotify


def lock(path: Path, socket_path: Path) -> int:
    """One agent per state directory; the kernel lets go of the lock however we die.

    Raises:
        OSError: another agent has it.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise FileExistsError(f"an agent is running already at {socket_path}") from None
    return descriptor


def raise_descriptors() -> None:
    """As many as we may have: each container keeps ten open, to be read every second. The launcher, which was started
    before, hands down what we had."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def descriptors_for_clients() -> int:
    """Return the descriptor from which on clients get none.

    The kernel hands out the lowest free number. What is above is kept for the agent's own files: containers to be
    started, samples, the journal.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - min(1024, soft // 4)


async def watchdog(interval_s: float) -> None:
    """Follows the event loop: a loop that hangs does not come here."""
    while True:
        sdnotify.notify("WATCHDOG=1")
        await asyncio.sleep(interval_s / 2)
