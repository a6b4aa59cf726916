"""The exit statuses of all commands: one convention, the source of ``--help``, man pages and docs/command.md."""

from __future__ import annotations

import enum
import os
import sys


class Status(enum.IntEnum):
    """The exit statuses of the commands themselves; some pass on the status of a command that they run."""

    DONE = 0
    FAILED = 1  # an obstacle: no agent, refused, a lost node
    USAGE = 2  # invalid input
    TIME_OVER = 3
    UNKNOWN = 4  # a named object does not exist; an unknown file or subcommand is USAGE
    INTERRUPTED = 130  # Ctrl-C: 128 + SIGINT


#: Their meanings unless a command defines others.
COMMON: dict[str, str] = {
    "0": "done",
    "1": "it could not be done; one line on standard error says why, and how to proceed",
    "2": "invalid input; one line on standard error says what is wrong, and how to correct it",
    "130": "ended by Ctrl-C",
}
#: The whole convention: the meaning of a number in any command.
CONVENTION: dict[str, str] = COMMON | {
    "3": "the time limit is over, and something is left",
    "4": "the named object does not exist: a container, job, node, reservation, application, process or certificate",
    "126": "the command to be run cannot be executed",
    "127": "the command to be run does not exist",
    "128 + n": "signal n ended the command that was run",
}
_OF_A_CHILD = {
    "0": "the command ended with 0",
    "1": "the command's own; or an obstacle to its start, reported in one line on standard error",
    "2": "the command's own; or invalid options",
    "126": "it cannot be executed",
    "127": "there is no such command",
    "137": "killed, also out of memory or by preemption, as reported in one line on standard error",
    "128 + n": "signal n ended it",
    "other": "the command's own",
}
_OF_A_DAEMON = {
    "0": "ended as requested (SIGTERM); or the configuration was shown or is valid",
    "1": "it cannot start; one line on standard error says why, and how to proceed",
    "2": "invalid options or configuration: one line for each error",
}
#: Tables that are complete without COMMON.
_WHOLE = (_OF_A_CHILD, _OF_A_DAEMON)
_NO_CONTAINER = "there is no such container on this host, or it ended too long ago"
#: Command → meanings that differ from, or extend, :data:`COMMON`.
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
    "profile": {"4": "no run of this application has been recorded, or no run of this name"},
    "reserve": {"4": "the reservation to be updated does not exist"},
    "reservations": {"4": "there is no such reservation; those named before it have been deleted"},
    "ca": {"4": "renew, revoke: no certificate was issued for that name"},
    "submit": {
        "0": "every task succeeded; with --detach: the job is accepted",
        "1": "a task did not succeed, or the job could not be run",
        "4": "there is no such reservation",
        "128 + n": "signal n cancelled the job",
    },
    "check": {"0": "everything requested can be enforced", "1": "something cannot be enforced: its line says why"},
    "config": {"2": "the configuration is invalid: one line for each error"},
    "jobs": {
        "0": "done; with --wait: every named job succeeded",
        "1": "it could not be done; a job is another user's; with --wait: a job did not succeed",
        "3": "the time limit is over and a job has not ended: one line says which",
        "4": "there is no such job, or it ended too long ago",
    },
    "cancel": {
        "0": "the jobs are stopped",
        "1": "a job is another user's or had ended; or it could not be done",
        "3": "something of a job still runs after a minute",
        "4": "there is no such job",
    },
    "explain": {"4": "there is no such job, or it ended too long ago"},
    "drain": {
        "0": "every node named is drained",
        "3": "the time limit is over and some work still runs: one line lists it",
        "4": "there is no such node",
    },
    "undrain": {"4": "there is no such node"},
    "uninstall": {
        "0": "nothing of Penstock is left",
        "1": "something is left, or nothing was done because something runs",
    },
}


def output_lost() -> Status:
    """Return the status of a command whose output has no reader any more (BrokenPipeError), or no room on the disk.

    Standard output is redirected, as Python would report the error again when it closes it.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Status.FAILED


def of(command: str) -> dict[str, str]:
    """Return a command's exit statuses in order, with their meanings. ``ca issue`` has those of ``ca``."""
    own = OF_COMMAND.get(command) or OF_COMMAND.get(command.partition(" ")[0], {})
    return ordered(own if own in _WHOLE else COMMON | own)


def ordered(rows: dict[str, str]) -> dict[str, str]:
    """Sort by number, with entries that are not a single number last."""
    return dict(sorted(rows.items(), key=lambda row: (False, int(row[0])) if row[0].isdigit() else (True, 0)))


def section(command: str) -> str:
    """Return the section about exit statuses at the end of a command's help."""
    rows = of(command)
    width = max(map(len, rows))
    return "\n".join(["exit status:", *(f"  {status:<{width}}  {meaning}" for status, meaning in rows.items())])
