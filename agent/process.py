"""What the agent's process asks of the system for itself: to be the only one, descriptors, a watchdog."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from pathlib import Path

import structlog

from agent import disk_scheduler
from agent.launcher import Launcher, LaunchFailed
from penstock import sdnotify
from penstock.locking import claim

log = structlog.get_logger()


def lock(state: Path, runtime: Path, socket_path: Path) -> None:
    """Own the agent's directories and its socket until the process ends.

    The agent takes all locks before it touches anything else there: launcher, containers and sockets may be those of
    an agent that runs.

    Raises:
        OSError: another agent uses one of them.
    """
    for key, place, file in (
        ("state_dir", state, state / "agent.lock"),
        ("runtime_dir", runtime, runtime / "agent-runtime.lock"),
        ("socket", socket_path, socket_path.with_name(f"{socket_path.name}.lock")),
    ):
        claim(
            file,
            f"an agent is running already at {place} (`{key}`); stop it, or set `state_dir` and `runtime_dir`, and "
            "`socket` where it is set, to places of this agent's own",
        )


def choose_disk_scheduler(chosen: str, disks: list[str], state: Path) -> None:
    """Have the chosen scheduler on each disk, as far as the host offers it."""
    for disk, why in disk_scheduler.choose(chosen, disks, disk_scheduler.kept(state)).items():
        log.warning("disk scheduler not changed", disk=disk, why=why)


async def end_idle_launcher(launcher: Launcher) -> None:
    """End a launcher that runs nothing, as the agent that started it did not start itself."""
    with contextlib.suppress(LaunchFailed):
        if not await launcher.running():
            await launcher.shutdown()


def pids_for_containers() -> int:
    """Return how many processes and threads all containers together may have: nine tenths of what the host can."""
    most = (int(Path(f"/proc/sys/kernel/{name}").read_text(encoding="ascii")) for name in ("pid_max", "threads-max"))
    return max(1, min(most) * 9 // 10)


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
