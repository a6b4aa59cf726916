"""``penstock config``: what a daemon's configuration says, where each value is from, and what is wrong with it.

What keys there are the daemon's own command knows (``--show-config``, ``--check-config``).
"""

from __future__ import annotations

from pathlib import Path

from penstock.cli import arguments
from penstock.cli.errors import CommandError, usage_error

_EXAMPLE = """of the sources the later wins: defaults, FILE, PENSTOCK_AGENT_KEY or PENSTOCK_MASTER_KEY of this command's
environment, --set. A running daemon reads its file again on SIGHUP (systemctl reload penstock-agent).
exit status: 0, or 2 if something is wrong with the configuration: one line for each fault"""


def main(argv: list[str]) -> int:
    """The command; returns its exit status."""
    parser = arguments.Parser("config", "What a daemon's configuration says, and what is wrong with it.", _EXAMPLE)
    parser.add_argument("do", choices=["show", "check"], help="show every key, or say what is wrong")
    parser.add_argument("daemon", choices=["agent", "master"])
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="default: /etc/penstock/DAEMON.toml, where there is one"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the same, as the daemons call it")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key; repeatable")
    parser.add_argument("--json", action="store_true", help="with show: as JSON")
    options = parser.parse_args(argv)
    if options.file is not None and options.config is not None:
        raise usage_error("FILE is given twice; leave --config out")
    passed = [f"--{options.do}-config"]
    file = options.file or options.config or _usual(options.daemon)
    if file is not None:
        passed += ["--config", str(file)]
    for pair in options.set:
        passed += ["--set", pair]
    return _ask(options.daemon, [*passed, *(["--json"] if options.json else [])])


def _usual(daemon: str) -> Path | None:
    file = Path(f"/etc/penstock/{daemon}.toml")
    return file if file.exists() else None


def _ask(daemon: str, argv: list[str]) -> int:
    from importlib.metadata import entry_points

    for entry in entry_points(group="penstock.commands", name=daemon):
        try:
            return int(entry.load()(argv))
        except ImportError as error:
            raise CommandError(f"{error}; install it with `pip install 'penstock[{daemon}]'`") from None
    raise CommandError(f"the {daemon} is not installed; install it with `pip install 'penstock[{daemon}]'`")
