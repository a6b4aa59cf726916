"""``python -m demo``: see docs/demo.md."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from agent.config import AgentConfig
from demo import origin
from demo.corpus import CorpusError
from demo.node import NodeFailed
from demo.run import RunFailed
from demo.show import Options, ShowFailed, show
from penstock.client import AgentUnavailable
from penstock.config.settings import SettingsError, load
from penstock.wire.errors import RpcError

_TOLD = (ShowFailed, CorpusError, NodeFailed, RunFailed, AgentUnavailable, RpcError, OSError, TimeoutError)


def parse(arguments: Sequence[str]) -> Options:
    """The command line; exit status 2 and one line for bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Real analytics jobs on this host: all at once, on a static split, through Penstock.",
    )
    parser.add_argument(
        "--input", type=Path, metavar="DIR", help="text of your own; default: text that every machine has"
    )
    parser.add_argument("--megabytes", type=int, metavar="N", help="default: 120, less where memory is short")
    parser.add_argument("--out", type=Path, metavar="DIR", default=Path("demo-out"), help="report.json, timeline.png")
    parser.add_argument("--http", metavar="ADDRESS:PORT", default="127.0.0.1:0", help="status; default: any free port")
    parser.add_argument("--commit", metavar="TEXT", default=None, help="for the report; default: the checkout's")
    parser.add_argument("--machine", metavar="TEXT", default=None, help="for the report; default: this host")
    parser.add_argument("--keep", action="store_true", help="keep text and outputs, too")
    options = parser.parse_args(arguments)
    if options.megabytes is not None and options.megabytes < 1:
        parser.error("--megabytes: must be at least 1")
    if options.input is not None and not options.input.is_dir():
        parser.error(f"--input: {options.input} is not a directory")
    try:
        load(AgentConfig, overrides={"http": options.http}).check()
    except SettingsError as error:  # now, and not when the text is written and the agent starts
        parser.error(f"--http: {options.http} will not do, name 127.0.0.1:PORT: {error}")
    commit = origin.commit() if options.commit is None else options.commit
    machine = origin.machine() if options.machine is None else options.machine
    return Options(options.input, options.megabytes, options.out, options.http, options.keep, commit, machine)


def main(arguments: Sequence[str]) -> int:
    """Run the command; each error is one line."""
    options = parse(arguments)
    return guarded("demo", lambda: show(options))


def guarded(program: str, work: Callable[[], int]) -> int:
    """Return the exit status of work that has to do with the demonstration: each of its errors is one line."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    status = 1
    try:
        status = work()
    except* KeyboardInterrupt:
        print(f"\n{program}: interrupted; everything is stopped", file=sys.stderr)
        status = 130
    except* _TOLD as group:
        for error in _flat(group):
            print(f"{program}: {error}", file=sys.stderr)
    return status


def _flat(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flat(error)
        else:
            yield error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
