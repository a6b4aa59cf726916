"""The exit statuses of every command: one convention, of which ``--help``, man pages and docs/command.md are made."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """What a command returns, as far as it does not pass on what another one returned."""

    DONE = 0
    FAILED = 1  # the world is in the way: no agent, refused, a node that went away
    USAGE = 2  # what was written makes no sense
    TIME_OVER = 3
    UNKNOWN = 4  # what was named does not exist; a file, or a word of the command line itself, is USAGE
    CANNOT_EXECUTE = 126
    NO_SUCH_COMMAND = 127
    SIGNALLED = 128  # and the signal's number
    INTERRUPTED = 130  # Ctrl-C: 128 + SIGINT


#: What they mean where nothing else is said.
COMMON: dict[str, str] = {
    "0": "done",
    "1": "it could not be done; one line on standard error says why, and what helps",
    "2": "what was written makes no sense; one line on standard error says what, and what would",
    "130": "ended by Ctrl-C",
}
#: All of the convention: what a number means wherever it is returned.
CONVENTION: dict[str, str] = COMMON | {
    "3": "the time that was given is over, and something is left",
    "4": "what was named does not exist: a container, job, node, reservation, application, process or certificate",
    "126": "a command that was to be run cannot be executed",
    "127": "there is no such command to be run",
    "128 + n": "signal n ended what was run",
}
_OF_A_CHILD = {
    "0": "the command ended with 0",
    "1": "the command's own; or something kept it from starting, as one line on standard error says",
    "2": "the command's own; or the options make no sense",
    "126": "it cannot be executed",
    "127": "there is no such command",
    "137": "killed, also for want of memory or by preemption, as one line on standard error says",
    "128 + n": "signal n ended it",
    "other": "the command's own",
}
_OF_A_DAEMON = {
    "0": "ended as it was told to (SIGTERM); or the configuration was shown or is in order",
    "1": "it cannot start; one line on standard error says why, and what helps",
    "2": "something is wrong with the options or the configuration: one line for each fault",
}
#: Those who say all of it.
_WHOLE = (_OF_A_CHILD, _OF_A_DAEMON)
_NO_CONTAINER = "there is no such container on this host, or it ended too long ago"
#: Command → what its statuses mean where that is not, or is more than, :data:`COMMON`.
OF_COMMAND: dict[str, dict[str, str]] = {
    "run": _OF_A_CHILD,
    "dask-worker": _OF_A_CHILD,
    "agent": _OF_A_DAEMON,
    "master": _OF_A_DAEMON,
    "adopt": {"4": "there is no such process"},
    "resize": {"4": _NO_CONTAINER},
    "follow": {"4": _NO_CONTAINER},
    "kill": {"4": _NO_CONTAINER},
    "logs": {"4": "there is no such container or job on this host, or it ended too long ago"},
    "profile": {"4": "no run of such an application has been kept, or none of this name"},
    "reserve": {"4": "there is no such reservation that could be updated"},
    "reservations": {"4": "there is no such reservation; those that were named before it are given back"},
    "ca": {"4": "renew, revoke: nothing was issued for that name"},
    "submit": {
        "0": "every task succeeded; with --detach: the job is accepted",
        "1": "a task did not succeed, or the job could not be run",
        "4": "there is no such reservation",
        "128 + n": "signal n cancelled the job",
    },
    "check": {"0": "all that is asked for can be enforced", "1": "something cannot: its line says why"},
    "config": {"2": "something is wrong with the configuration: one line for each fault"},
    "jobs": {
        "0": "done; with --wait: every named job succeeded",
        "1": "it could not be done; a job is somebody else's; with --wait: a job did not succeed",
        "3": "the time is over and a job has not ended: one line says which",
        "4": "there is no such job, or it ended too long ago",
    },
    "cancel": {
        "0": "the jobs are stopped",
        "1": "a job is somebody else's or had ended; or it could not be done",
        "3": "something of a job still runs after a minute",
        "4": "there is no such job",
    },
    "explain": {"4": "there is no such job, or it ended too long ago"},
    "drain": {
        "0": "every node named is drained",
        "3": "the time is over and something still runs: one line says what",
        "4": "there is no such node",
    },
    "undrain": {"4": "there is no such node"},
    "uninstall": {
        "0": "nothing of Penstock's is left",
        "1": "something is left, or nothing was done because something runs",
    },
    "paper": {"0": "every claim was tried, whether it holds or not", "1": "one could not be tried to its end"},
}


def of(command: str) -> dict[str, str]:
    """A command's exit statuses, in their order, and what they mean. ``ca issue`` has those of ``ca``."""
    own = OF_COMMAND.get(command) or OF_COMMAND.get(command.partition(" ")[0], {})
    return ordered(own if own in _WHOLE else COMMON | own)


def ordered(rows: dict[str, str]) -> dict[str, str]:
    """By number, what is no single number last."""
    return dict(sorted(rows.items(), key=_order))


def section(command: str) -> str:
    """The end of a command's help."""
    rows = of(command)
    width = max(map(len, rows))
    return "\n".join(["exit status:", *(f"  {status:<{width}}  {meaning}" for status, meaning in rows.items())])


def _order(row: tuple[str, str]) -> tuple[bool, int]:
    return (False, int(row[0])) if row[0].isdigit() else (True, 0)
