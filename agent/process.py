"""Process-wide resources of the agent: exclusive locks, descriptors, a watchdog."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from pathlib import Path

from penstock import sdnotify
from penstock.locking import claim

#: The limits on descriptors, soft and hard, with which the agent was started: containers get these.
STARTED_WITH = resource.getrlimit(resource.RLIMIT_NOFILE)


def lock(state: Path, runtime: Path, socket_path: Path) -> float | None:
    """Own the agent's directories and its socket until the process ends.

    Return when the agent that owned ``state`` before was started (Unix, the date of the lock's file); None: none was.

    The agent takes all locks before it touches anything else there: launcher, containers and sockets may belong to a
    running agent.

    Raises:
        OSError: another agent uses one of them, or a lock's file cannot be opened; the message names the key.
    """
    before_at = None
    with contextlib.suppress(OSError):  # the claim reports it
        before_at = (state / "agent.lock").stat().st_mtime
    for key, place, file in (
        ("runtime_dir", runtime, runtime / "agent-runtime.lock"),
        ("socket", socket_path, socket_path.with_name(f"{socket_path.name}.lock")),
        ("state_dir", state, state / "agent.lock"),  # the last one: a start that fails at another leaves its date
    ):
        taken = (
            f"an agent is running already at {place} (`{key}`); stop it, or set `state_dir` and `runtime_dir`, and "
            "`socket` where it is set, to places of this agent's own"
        )
        try:
            claim(file, taken)
        except OSError as error:
            if not error.strerror:
                raise
            raise OSError(f"{key}: {file}: {error.strerror}; name another place") from error
    return before_at


def pids_for_containers() -> int:
    """Return the limit on processes and threads of all containers together: nine tenths of the host's."""
    most = (int(Path(f"/proc/sys/kernel/{name}").read_text(encoding="ascii")) for name in ("pid_max", "threads-max"))
    return max(1, min(most) * 9 // 10)


def raise_descriptors() -> None:
    """Raise the limit on descriptors to its maximum: each container keeps ten open, for reads every second. A launcher
    is started with the former limit (:data:`STARTED_WITH`), which containers inherit.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def descriptors_for_clients() -> int:
    """Return the first descriptor that clients do not get.

    The kernel returns the lowest free number. Higher ones are reserved for the agent's own files: starting containers,
    samples, the journal.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft - min(1024, soft // 4)


async def watchdog(interval_s: float) -> None:
    """Notify the watchdog from the event loop: a loop that hangs does not."""
    while True:
        sdnotify.notify("WATCHDOG=1")
        await asyncio.sleep(interval_s / 2)
