"""Man pages: penstock(1), one for each command, agent.toml(5) and master.toml(5). For docs/make_command.py.

Only features that every implementation of man supports are used: the classic macros, and Unicode as groff's escapes.
"""

from __future__ import annotations

import re

import msgspec
from command_examples import EXAMPLES

from agent.config import AgentConfig
from master.config import MasterConfig
from penstock import __version__
from penstock.cli import catalogue, exit_statuses, main
from penstock.cli.catalogue import Argument, Command
from penstock.config import declaration

_CONFIGURATIONS: dict[str, type[msgspec.Struct]] = {"agent": AgentConfig, "master": MasterConfig}
_ENVIRONMENT = {
    "PENSTOCK_SOCKET": "the agent's socket; default: that of the user's own agent if it runs, else the host's",
    "PENSTOCK_MASTER_HTTP": "the address of the master's HTTP for `penstock profile`",
    "PENSTOCK_RUNTIME_DIR, PENSTOCK_STATE_DIR": "the directories of a daemon's sockets and of its persistent state",
    "PENSTOCK_AGENT_KEY, PENSTOCK_MASTER_KEY": "a daemon's configuration: KEY is the name of a key in capitals",
    "NO_COLOR": "if it is set and not empty, tables have no colours on a terminal; elsewhere they never have colours",
}
_FILES = {
    "/etc/penstock/agent.toml, /etc/penstock/master.toml": "the daemons' configuration",
    "/run/penstock/agent.sock": "the agent's socket; for a user's own agent $XDG_RUNTIME_DIR/penstock/agent.sock",
    "/var/lib/penstock": "the persistent state; for a user's own daemons ~/.local/state/penstock",
    "/etc/penstock/ca": "the certificate authority of root; for other users ~/.config/penstock/ca",
}
_DESCRIPTION = """
Penstock schedules batch work on Linux hosts. On each host an agent admits work to CPU, memory, disk and network. A
master places work on the hosts, keeps its promises, and gives unused resources to other work. This command sends its
requests to the agent of this host, which relays requests about the cluster to the master."""
_JSON = """
With --json a command prints one JSON document and nothing else on standard output. Errors are one line on standard
error, with or without --json."""
_FORM = """
TOML: one KEY = VALUE per line. Quantities have units: "2GiB", "500ms", "1Gbit/s". An unknown key is an error that names
the nearest known key. Later sources take precedence: the defaults below, the file, environment variables named
PENSTOCK_%s_KEY, --set KEY=VALUE."""


def pages(found: list[Command]) -> dict[str, str]:
    """Return path below a directory of man pages → content of the file."""
    made = {"man1/penstock.1": _overview(found)}
    made |= {f"man1/penstock-{one.name}.1": _command(one) for one in found}
    return made | {f"man5/{daemon}.toml.5": _configuration(daemon, of) for daemon, of in _CONFIGURATIONS.items()}


def epilog(command: Command) -> str:
    """Return the text below the options of a command's help, without a daemon's keys, which have their own page."""
    below = (command.parser.epilog or "") if command.parser is not None else ""
    return "" if below.startswith("configuration keys") else at_home(below.strip())


def at_home(text: str) -> str:
    """Return the text with the home directory written as ``~``."""
    return text.replace("/home/you/", "~/")


# ---------------------------------------------------------------- the pages


def _overview(found: list[Command]) -> str:
    see = [f"penstock-{one.name}(1)" for one in found] + [f"{daemon}.toml(5)" for daemon in _CONFIGURATIONS]
    return _page(
        "penstock", 1, "promise, share and watch the resources of Linux hosts",
        *_titled("SYNOPSIS", r"\fBpenstock\fR \fICOMMAND\fR [\fIARGUMENT\fR\[u2026]]"),
        *_titled("DESCRIPTION", _prose(_DESCRIPTION), ".PP", _prose(_JSON)),
        *_titled("COMMANDS", *_grouped(found)),
        *_statuses(exit_statuses.ordered(exit_statuses.CONVENTION)),
        *_titled("ENVIRONMENT", *(line for name, what in _ENVIRONMENT.items() for line in _tagged(_b(name), what))),
        *_files(),
        *_titled("EXAMPLES", *_examples([EXAMPLES[name][0] for name in ("up", "run", "submit", "top")])),
        *_see(*see),
    )  # fmt: skip


def _grouped(found: list[Command]) -> list[str]:
    about = {one.name: one.about for one in found}
    lines = []
    for title, group in main.GROUPS.items():
        lines += [f".SS {_escaped(title)}"]
        lines += [line for name in group for line in _tagged(_b(f"penstock {name}"), about[name])]
    return lines


def _command(command: Command) -> str:
    """``ca`` and its like have a section for each command that they consist of."""
    about = command.about or "a command of Penstock"
    lines = _titled("SYNOPSIS", *_synopsis(command))
    if command.parser is None and not command.parts:
        lines += _titled("DESCRIPTION", *_literal(command.help))
    else:
        said = command.parser.description if command.parser is not None else f"{about[0].upper()}{about[1:]}."
        lines += _titled("DESCRIPTION", _prose(said or ""), *_epilog(command))
        lines += _titled("OPTIONS", *_options(command))
    examples = _examples(EXAMPLES.get(command.name, []))
    also = {"agent": ["agent.toml(5)"], "master": ["master.toml(5)"], "config": ["agent.toml(5)", "master.toml(5)"]}
    return _page(
        f"penstock-{command.name}", 1, about, *lines, *_statuses(exit_statuses.of(command.name)), *_files(),
        *(_titled("EXAMPLES", *examples) if examples else []), *_see("penstock(1)", *also.get(command.name, [])),
    )  # fmt: skip


def _synopsis(command: Command) -> list[str]:
    parts = command.parts or (command,)
    lines = [
        catalogue.synopsis(one.name, one.parser)
        if one.parser is not None
        else f"penstock {one.name} [OPTION…] -- ARGUMENT…"
        for one in parts
    ]
    return [line for each in lines for line in (".br", _synopsis_line(each))][1:]


def _synopsis_line(text: str) -> str:
    """Return usage with literal words in bold and placeholders in another face."""
    words = text.split(" ")
    kept = next((at for at, word in enumerate(words) if at and not word.islower()), len(words))
    return " ".join([_b(" ".join(words[:kept])), *map(_escaped, words[kept:])])


def _options(command: Command) -> list[str]:
    lines = []
    for part in command.parts:
        lines += [f".SS {_escaped(part.name)}", _prose((part.parser.description or "") if part.parser else part.about)]
        lines += [*_options(part), *_epilog(part)]
    if command.parser is not None:
        for title, rows in catalogue.arguments(command.parser):
            lines += [f".SS {_escaped(title)}"] if title else []
            lines += [line for row in rows for line in _tagged(_flags(row), row.help)]
    return lines or ["None but --help."]


def _configuration(daemon: str, of: type[msgspec.Struct]) -> str:
    keys = declaration.keys(of)
    live = "Keys marked with * are read again on SIGHUP (systemctl reload)."
    rows = [
        line
        for key in keys
        for line in _tagged(f"{_b(key.name)}{'*' if key.live else ''} = {_escaped(key.default)}", key.description)
    ]
    name = f"{daemon}.toml"
    return _page(
        name, 5, f"configuration of Penstock's {daemon}",
        *_titled("SYNOPSIS", _b(f"/etc/penstock/{name}")),
        *_titled("DESCRIPTION", _prose(_FORM % daemon.upper()), ".PP", _prose(live)),
        *_titled("OPTIONS", _prose("Each with its default."), *rows),
        *_titled("EXIT STATUS", _prose(f"`penstock config check {daemon}` returns 2 if something is wrong.")),
        *_files(),
        *_titled("EXAMPLES", *_literal("\n".join(f"{key.name} = {key.default}" for key in keys[:3]))),
        *_see("penstock(1)", f"penstock-{daemon}(1)", "penstock-config(1)"),
    )  # fmt: skip


# ---------------------------------------------------------------- sections


def _page(name: str, section: int, about: str, *lines: str) -> str:
    head = [
        '.\\" Written by docs/make_command.py',
        f'.TH "{_escaped(name.upper())}" {section} "" "Penstock {__version__}" "Penstock"',
        *_titled("NAME", f"{_escaped(name)} \\- {_escaped(about)}"),
    ]
    return "\n".join([*head, *(line for line in lines if line), ""])


def _titled(title: str, *lines: str) -> list[str]:
    return [f".SH {title}", *lines]


def _statuses(rows: dict[str, str]) -> list[str]:
    return _titled("EXIT STATUS", *(line for number, what in rows.items() for line in _tagged(_b(number), what)))


def _files() -> list[str]:
    return _titled("FILES", *(line for path, what in _FILES.items() for line in _tagged(_escaped(path), what)))


def _examples(examples: list[tuple[str, str]]) -> list[str]:
    return [line for typed, what in examples for line in (".PP", _prose(what), *_literal(typed))]


def _see(*names: str) -> list[str]:
    return _titled("SEE ALSO", ",\n".join(f"{_b(name[:-3])}{name[-3:]}" for name in names))


def _epilog(command: Command) -> list[str]:
    return _literal(epilog(command)) if epilog(command) else []


def _tagged(tag: str, text: str) -> list[str]:
    return [".TP", tag, _prose(text) or "\\&"]


def _flags(argument: Argument) -> str:
    if not argument.flags:
        return _escaped(argument.value)
    return ", ".join(f"{_b(flag)} {_escaped(argument.value)}".rstrip() for flag in argument.flags)


# ---------------------------------------------------------------- roff


def _literal(text: str) -> list[str]:
    """Return lines of literal text."""
    return [
        ".PP",
        ".nf",
        ".RS 4",
        *(_line(_escaped(line)) or "\\&" for line in at_home(text).split("\n")),
        ".RE",
        ".fi",
    ]


def _prose(text: str) -> str:
    """Return one paragraph, with words in backquotes in bold."""
    parts = re.split(r"`([^`]*)`", " ".join(at_home(text).split()))
    return _line("".join(_b(part) if index % 2 else _escaped(part) for index, part in enumerate(parts)))


def _b(text: str) -> str:
    return f"\\fB{_escaped(text)}\\fR"


def _line(text: str) -> str:
    """Escape the beginning of a line that man would take for a request."""
    return f"\\&{text}" if text[:1] in {".", "'"} else text


_ESCAPES = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti", '"': "\\(dq"}


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c) or (c if c.isascii() else f"\\[u{ord(c):04X}]") for c in at_home(text))
