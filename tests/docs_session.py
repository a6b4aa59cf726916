"""A reader who types a page's commands: a shell in a home of its own, and a real ``penstock up`` where a page has
it.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import warm_commands
from tests.docs_pages import ROOT

_TIMEOUT_S = 120.0
#: These change nothing: their output is read again, for so long, until it is the page's.
_LOOKS = re.compile(r"^(penstock (status|logs|jobs|profile|explain)|curl) ")
_SETTLE_S = 20.0
#: They go on until they are interrupted: their first output is tried.
_ENDLESS = re.compile(r"^(penstock (top\b(?!.*--(once|help))|logs (-f|--follow)\b)|watch )")
#: Other statuses than 0 that mean success: here are limits that this host cannot enforce.
_FINE = {"penstock check": (0, 1)}
#: They change the host, or take minutes: a page that has them marks them as only read.
_NEVER = re.compile(
    r"(^|[;&|]\s*)(sudo )?(pip|systemctl|make|git|ansible[\w-]*|apt-get|spark-\w+|penstock spark-config"
    r"|penstock uninstall(?!.*--dry-run)|python -m (build|tests|bench|demo))\b"
)
#: Limits that a host cannot enforce are reported beside the output; they differ on every host.
_OF_THIS_HOST = re.compile(r"^penstock \w+: --[\w-]+(?: on \S+)? is not enforced: .*\n", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\b(CONTAINER|PID|JOB|NODE|USER_ID|RESERVATION)\b")
_ID = re.compile(r"\b[a-z]{1,2}-[0-9a-f]{8}(?:-\d+)?\b")
_VARIES = re.compile(
    r"(?P<id>\b[a-z]{1,2}-[0-9a-f]{8}(?:-\d+)?\b)|(?P<time>(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d)"
    r"|(?P<decimal>\d[\d,]*\.\d+(?![\d.]))|(?P<dots>…)|(?P<space>\s+)"
)


class FailedError(AssertionError):
    """A statement of a page is wrong."""


class Session:
    """A context; ``step`` types one command."""

    def __init__(self, home: Path) -> None:
        home.chmod(0o755)
        self.work = home / "work"
        self.work.mkdir()
        (home / "etc").mkdir()
        (self.work / "examples").symlink_to(ROOT / "examples")
        self._home = home
        self._addresses: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._up: subprocess.Popen[str] | None = None
        self._others: list[subprocess.Popen[str]] = []
        around = {key: value for key, value in os.environ.items() if not key.startswith(("PENSTOCK_", "DASK_"))}
        self._environment = around | {
            "HOME": str(home),
            "PATH": f"{Path(warm_commands.penstock()).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "120",
            "PENSTOCK_RUNTIME_DIR": str(home / "run"),
            "PENSTOCK_STATE_DIR": str(home / "state"),
            "PENSTOCK_UP_SCOPE": "none: the test's own processes",
        }
        # bash rather than sh: on some systems sh has no `source`, and readers type into bash.
        self._answers, child = os.pipe()
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-s"],
            stdin=subprocess.PIPE,
            cwd=self.work,
            env=self._environment,
            pass_fds=[child],
            text=True,
            start_new_session=True,
        )
        os.close(child)
        self._answer_fd = child
        self._status = self._typed = 0
        self.step('sudo() { "$@"; }; export -f sudo', "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._others:
            _end(process, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        _end(self._shell, signal.SIGKILL)
        os.close(self._answers)
        self._stop()

    def _stop(self) -> None:
        """Press Ctrl-C where ``penstock up`` runs, and end detached processes."""
        if self._up is not None:
            _end(self._up, signal.SIGTERM)
            self._up = None
        self._end_launcher()

    def _end_launcher(self) -> None:
        """End the launcher with all its containers; on purpose it outlives an agent."""
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                argv = (entry / "cmdline").read_bytes().split(b"\0")
                if b"agent.launcher" in argv and str(self._home / "run").encode() in argv:
                    gone = os.pidfd_open(int(entry.name))
                    os.kill(int(entry.name), signal.SIGTERM)
                    assert select.select([gone], [], [], 60)[0], "the launcher did not end"
                    os.close(gone)

    def step(self, command: str, expected: str) -> str:
        """Type a command; return its output. It must print the expected text, or, where there is none, succeed."""
        if _NEVER.search(command):
            raise FailedError(
                f"$ {command}\nis not for a test to run: put `<!-- test: parse; why -->` in front of the block"
            )
        command = self._real(command)
        give_up = time.monotonic() + _SETTLE_S
        while True:
            output, status = self._do(command)
            try:
                self._judge(command, expected, output, status)
            except FailedError:
                # A reader looks again at something that has only just begun.
                if not _LOOKS.match(command) or time.monotonic() > give_up:
                    raise
            else:
                break
        if self._up is not None and self._up.poll() is not None:
            raise FailedError(f"penstock up has ended:\n{(self._home / 'up.log').read_text()[-3000:]}")
        return output

    def _judge(self, command: str, expected: str, output: str, status: int) -> None:
        if expected:
            # The pages call their reader eve.
            self._compare(command, re.sub(r"\beve\b", getpass.getuser(), self._here(expected)), output)
        elif status not in _FINE.get(command.split(" #", maxsplit=1)[0].strip(), (0,)):
            raise FailedError(f"$ {command}\n{output}\n(exit status {status})")

    def _do(self, command: str) -> tuple[str, int]:
        """Its output and status; of several commands on a line, one of which is endless, each for itself."""
        first, semicolon, rest = command.partition(" ; ")
        if semicolon and _ENDLESS.match(rest):
            before = self._do(first)[0]
            output, status = self._do(rest)
            return before + output, status
        if command.startswith("penstock uninstall"):
            self._stop()
        if command.startswith("penstock up"):
            return self._start(shlex.split(command, comments=True)), 0
        if _ENDLESS.match(command):
            return self._look(command), 0
        return self._type(command)

    def _real(self, text: str) -> str:
        """With this session's ids, places and addresses instead of the page's."""
        text = re.sub(r"^(penstock ca (?!--)\w+)", rf"\1 --directory {self._home}/ca", text)
        # Other agents of this host are none of its business.
        text = text.replace("penstock uninstall", f"penstock uninstall --set cgroup_root={self._home}/none")
        text = _PLACEHOLDER.sub(lambda match: f'"${match[1]}"' if f"{match[1]}=" not in text else match[1], text)
        return self._here(text)

    def _here(self, text: str) -> str:
        text = _ID.sub(lambda match: self._ids.get(match[0], match[0]), text)
        text = text.replace("/etc/penstock", str(self._home / "etc"))
        if self._addresses:
            text = text.replace("/run/penstock/agent.sock", self._addresses["socket"])
            for usual, name in (("7420", "master"), ("7421", "agent_http"), ("7422", "master_http")):
                text = text.replace(f"127.0.0.1:{usual}", self._addresses[name])
        return text

    def _type(self, command: str) -> tuple[str, int]:
        # Of its own: a command in the background goes on writing into its file.
        self._typed += 1
        script, output = self._home / "command", self._home / f"output-{self._typed}"
        # The shell's own $? is that of the page's previous command.
        script.write_text(f"(exit {self._status})\n{command}\n", encoding="utf-8")
        assert self._shell.stdin is not None
        self._shell.stdin.write(
            f"source {script} >{output} 2>&1 </dev/null {self._answer_fd}>&-; echo $? >&{self._answer_fd}\n"
        )
        self._shell.stdin.flush()
        if not select.select([self._answers], [], [], _TIMEOUT_S)[0]:
            raise FailedError(f"$ {command}\n{output.read_text()}\n(not over within {_TIMEOUT_S:g} s)")
        answer = os.read(self._answers, 16)
        if not answer:
            raise FailedError(f"$ {command}\n{output.read_text()}\n(it ended the shell)")
        self._status = int(answer)
        return output.read_text(encoding="utf-8", errors="replace"), self._status

    def _start(self, command: list[str]) -> str:
        ports = self._home / "ports.json"
        log = (self._home / "up.log").open("w")
        with log:
            self._up = subprocess.Popen(
                [*command, "--port-file", str(ports)],
                cwd=self.work,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._up.stdout is not None
        lines = ""
        for line in self._up.stdout:
            lines += line
            if line.startswith("ready"):
                self._addresses = json.loads(ports.read_text())
                return lines
        raise FailedError(f"penstock up did not start:\n{(self._home / 'up.log').read_text()}")

    def _look(self, command: str) -> str:
        """Start it, wait until it has shown something, interrupt it."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.work,
            env=self._environment | self._exported(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # The tests themselves may run as a shell's job in the background, which ignores this signal.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self._others.append(process)
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], _TIMEOUT_S)[0]:
            raise FailedError(f"$ {command}\n(nothing shown within {_TIMEOUT_S:g} s)")
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=_TIMEOUT_S)[0]
        if "Traceback" in output or process.returncode not in (0, 1, 130, -signal.SIGINT) or not output:
            raise FailedError(f"$ {command}\n{output}\n(exit status {process.returncode})")
        return output

    def _exported(self) -> dict[str, str]:
        lines = self._type("(set -o posix; set) | grep -E '^[A-Z_]+=[^()]*$'")[0].splitlines()
        return dict(line.split("=", 1) for line in lines)

    def _compare(self, command: str, expected: str, output: str) -> None:
        pattern, ids = _pattern(expected, frozenset(self._ids.values()))
        found = re.fullmatch(pattern, _OF_THIS_HOST.sub("", output).rstrip() + "\n")
        if found is None:
            raise FailedError(f"$ {command}\n{output}\n--- but the page says:\n{expected}")
        for name, of_page in ids.items():
            self._ids[of_page] = found[name]


def _pattern(expected: str, known_ids: frozenset[str] = frozenset()) -> tuple[str, dict[str, str]]:
    """Return the pattern of output of which the page shows ``expected``: ids, decimals and times vary, ``…`` is
    anything.

    A known id matches itself only. The second value has the groups of the new ids, and the page's name of each.
    """
    ids: dict[str, str] = {}

    def part(text: str) -> str:
        position, made = 0, ""
        for match in _VARIES.finditer(text):
            made += re.escape(text[position : match.start()]) + one(match)
            position = match.end()
        return made + re.escape(text[position:])

    def one(match: re.Match[str]) -> str:
        if match["id"] in known_ids:
            return re.escape(match["id"])
        if match["id"]:
            known = next((name for name, of_page in ids.items() if of_page == match["id"]), None)
            if known is not None:
                return f"(?P={known})"
            name = f"id{len(ids)}"
            ids[name] = match["id"]
            return rf"(?P<{name}>[a-z]{{1,2}}-[0-9a-f]{{8}}(?:-\d+)?)"
        if match["time"]:
            # With its date where it is not today's: an event that a page plans for the afternoon may end tomorrow.
            return r"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d"
        if match["decimal"]:
            return r"\d[\d,]*(?:\.\d+)?"
        return ".*?" if match["dots"] else r"[^\S\n]+"

    lines = [line.strip() for line in expected.rstrip().splitlines()]
    parts = [r"(?:.*\n)*?" if line == "…" else rf"[^\S\n]*{part(line)}[^\S\n]*\n" for line in lines]
    return "".join(parts), ids


def _end(process: subprocess.Popen[Any], number: int) -> None:
    if process.poll() is None:
        process.send_signal(number)
    give_up = time.monotonic() + 60
    try:
        process.wait(give_up - time.monotonic())
    finally:
        process.kill()
        process.wait(10)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
