"""``penstock up``: start master and agent together on this host, on loopback, without any configuration."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock import extras, paths, systemd_scope
from penstock.cli import arguments
from penstock.cli.errors import CommandError, note, usage_error
from penstock.cli.plain_text import printable
from penstock.cli.session import converse
from penstock.cli.up_directory import own_directory
from penstock.client import AgentClient, AgentUnavailable
from penstock.config.settings import scalar
from penstock.durable import replace_file

_HOST = "127.0.0.1"
#: The preferred ports; if one is taken, any free port is used.
_AGENT_HTTP_PORT, _MASTER_HTTP_PORT = 7421, 7422
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 15.0
_LAST_LINES_S = 0.5
_LONGEST_LINE_BYTES = 8 * 1024 * 1024
_POLL_S = 0.02
#: In the environment of the instance that runs inside its own scope. Any other value: no scope is wanted.
_IN_SCOPE, _YES = "PENSTOCK_UP_SCOPE", "1"


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    options = _parse(argv)
    for daemon, library in extras.OF_A_DAEMON.items():
        if not extras.is_installed(library):
            remedy = f"install it with `{extras.install('agent,master')}`"
            raise CommandError(f"the {daemon} needs {library}, which is not installed; {remedy}")
    _enter_scope(argv)
    return converse(_Up(options).run())


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.Parser(
        "up",
        "Start master and agent on this host, on loopback. Ctrl-C ends both; detached containers run on.",
        "The keys are those of `penstock agent --help` and `penstock master --help`.",
    )
    parser.add_argument("--port-file", type=Path, metavar="FILE", help="write the addresses to FILE, as JSON")
    for option, daemon in (("--set", "agent"), ("--master-set", "master")):
        parser.add_argument(
            option,
            type=arguments.key_value,
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help=f"a configuration key of the {daemon}; repeatable",
        )
    options = parser.parse_args(argv)
    if options.port_file is not None and (why := paths.why_not_writable(options.port_file)):
        raise usage_error(f"--port-file: {why}")
    return options


# ---------------------------------------------------------------- scopes


def _enter_scope(argv: list[str]) -> None:
    """With systemd and cgroup v2, restart this process in a scope; the launcher gets one of its own for the containers.

    A user's processes may enter a scope of that user only from another one.
    """
    if _IN_SCOPE in os.environ or not _systemd_delegates():
        return
    name = f"penstock-up-{os.getpid()}"
    probed = [*systemd_scope.command(f"{name}-probe", for_containers=True), "true"]
    probe = subprocess.run(probed, capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        why = " ".join(probe.stderr.split()) or f"status {probe.returncode}"
        note("up", f"no scope of its own, limits may not be enforced: {why}")
        return
    os.environ[_IN_SCOPE] = _YES
    scope = systemd_scope.command(name)
    os.execvp(  # noqa: S606 - no shell, and the arguments are our own
        scope[0], [*scope, sys.executable, "-I", "-m", "penstock.cli.main", "up", *argv]
    )


def _systemd_delegates(
    running: Path = Path("/run/systemd/system"), controllers: Path = Path("/sys/fs/cgroup/cgroup.controllers")
) -> bool:
    if not running.is_dir() or shutil.which("systemd-run") is None:
        return False
    try:
        return bool(controllers.read_text(encoding="ascii").strip())
    except OSError:
        return False  # cgroup v1


# ---------------------------------------------------------------- the two daemons


class _Daemon:
    """A child process whose log lines are shown under its name."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: int, port_file: Path) -> None:
        self.name = name
        self.process = process
        self._port_file = port_file
        self._log = asyncio.create_task(_show_log(name, log))

    @classmethod
    async def start(cls, name: str, directory: Path, settings: dict[str, str]) -> _Daemon:
        """Start the daemon; return before it is ready."""
        port_file = directory / f"{name}.json"
        pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-I", "-m", name, "--port-file", str(port_file), *pairs]
        if (setpriv := shutil.which("setpriv")) is not None:
            command = [setpriv, "--pdeathsig", "TERM", *command]  # it must not outlive us
        # A pipe of our own: the agent's child processes may hold it longer than the agent lives, and asyncio's
        # wait() would wait for its end.
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stderr=write_end,
                start_new_session=True,  # shields it from Ctrl-C: the agent must end before the master
            )
        finally:
            os.close(write_end)
        return cls(name, process, read_end, port_file)

    async def addresses(self) -> dict[str, Any]:
        """Wait until the daemon listens and return its addresses.

        Raises:
            CommandError: it ended, or took too long.
        """
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                while not self._port_file.exists():
                    if self.process.returncode is not None:
                        await self.log_shown()
                        raise CommandError(f"the {self.name} did not start (exit status {self.process.returncode})")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise CommandError(
                f"the {self.name} was not ready within {_START_TIMEOUT_S:g} s; see its log above, or try again "
                "when the host is less busy"
            ) from None
        found: dict[str, Any] = json.loads(self._port_file.read_text(encoding="utf-8"))
        return found

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL to a daemon that hangs."""
        if self.process.returncode is None:
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), _STOP_TIMEOUT_S)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()
        await self.log_shown()

    async def log_shown(self) -> None:
        """Show the daemon's last log lines; not those of child processes that it left behind."""
        await asyncio.wait([self._log], timeout=_LAST_LINES_S)
        self._log.cancel()


async def _show_log(name: str, descriptor: int) -> None:
    reader = asyncio.StreamReader(limit=_LONGEST_LINE_BYTES)
    with open(descriptor, "rb") as pipe:  # noqa: ASYNC230 - a pipe, read by the loop
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        async for line in reader:
            print(_pretty(name, line.decode("utf-8", "replace").rstrip("\n")), file=sys.stderr, flush=True)


def _pretty(name: str, line: str) -> str:
    """Format a JSON log record for people; any other line has the daemon's name before it."""
    try:
        record = json.loads(line)
        at, level, event = record.pop("timestamp")[11:19], record.pop("level"), record.pop("event")
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{name:<6} | {printable(line.expandtabs())}"
    trace = str(record.pop("exception", "")).expandtabs().splitlines()
    rest = " ".join(f"{key}={value}" for key, value in record.items())
    return "\n".join(map(printable, [f"{name:<6} | {at} {level:<8} {event}  {rest}".rstrip(), *trace]))


class _Up:
    """Starts both daemons, prints their addresses, waits, stops them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._port_file: Path | None = options.port_file
        self._settings = {"agent": dict(options.set), "master": dict(options.master_set)}
        self._daemons: list[_Daemon] = []
        self._stop = asyncio.Event()
        self._http: dict[str, str] = {}  # the HTTP address given to each daemon
        self._written = b""  # what this process wrote to the port file

    async def run(self) -> int:
        """Return 0 after a request to stop; fail if a daemon ended by itself."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        with own_directory() as directory:
            try:
                starting = asyncio.create_task(self._start(directory))
                if not await self._finished(starting):
                    return 0
                self._announce(starting.result())
                return await self._watch()
            finally:
                for daemon in reversed(self._daemons):
                    await daemon.stop()
                self._remove_port_file()

    async def _finished(self, starting: asyncio.Task[dict[str, str]]) -> bool:
        """Return whether the start finished before a request to stop."""
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            return True
        starting.cancel()
        await asyncio.wait([starting])
        return False

    async def _start(self, directory: Path) -> dict[str, str]:
        given = self._settings["agent"]
        read = {key: str(scalar(text)) for key, text in given.items()}
        runtime = Path.cwd() / (read.get("runtime_dir") or paths.runtime_dir())
        await _refuse_a_second_one(Path(read.get("socket") or runtime / "agent.sock"))
        _make("runtime_dir", runtime, 0o755)  # the first to use it is the master, which knows no such key
        http = f"{_HOST}:{_free_port(_MASTER_HTTP_PORT)}"
        master = {"listen": str(runtime / "master.sock"), "http": http}
        if state := read.get("state_dir"):
            directory_of_both = Path.cwd() / state
            _make("state_dir", directory_of_both, 0o700)
            master["store"] = str(directory_of_both / "master.db")
        master |= self._settings["master"]
        self._daemons.append(await _Daemon.start("master", directory, master))
        of_master = await self._daemons[-1].addresses()
        http = f"{_HOST}:{_free_port(_AGENT_HTTP_PORT)}"
        agent = {"master": str(of_master["listen"]), "http": http}
        if os.environ.get(_IN_SCOPE) == _YES:
            agent["cgroup_root"] = "scope"
        agent |= given
        self._daemons.append(await _Daemon.start("agent", directory, agent))
        of_agent = await self._daemons[-1].addresses()
        self._http = {"agent": agent["http"], "master": master["http"]}
        client = await AgentClient.connect(Path(of_agent["socket"]), "penstock up")
        await client.close()
        return {
            "socket": str(of_agent["socket"]),
            "agent_http": str(of_agent["http"]),
            "master": str(of_master["listen"]),
            "master_http": str(of_master["http"]),
        }

    def _announce(self, addresses: dict[str, str]) -> None:
        if self._port_file is not None:
            self._written = json.dumps(addresses).encode()
            replace_file(self._port_file, self._written, 0o666)
        print(printable(f"agent socket   {addresses['socket']}"))
        for name, http in self._http.items():
            where = f"{name} status"
            if address := addresses[f"{name}_http"]:
                print(f"{where:<14} http://{address}/")
            else:
                print(f"{where:<14} none: another process has {http}; the {name} takes it as soon as it is free")
        print("ready; Ctrl-C ends both", flush=True)

    def _remove_port_file(self) -> None:
        """Remove the port file, unless it is another process's: one that ran before, or that wrote it since."""
        if self._port_file is None or not self._written:
            return
        with contextlib.suppress(OSError):
            if self._port_file.read_bytes() == self._written:
                self._port_file.unlink()

    async def _watch(self) -> int:
        stopping = asyncio.create_task(self._stop.wait())
        ends = {asyncio.create_task(daemon.process.wait()): daemon for daemon in self._daemons}
        await asyncio.wait([stopping, *ends], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        dead = [daemon for end, daemon in ends.items() if end.done()]
        for end in ends:
            end.cancel()
        if self._stop.is_set() or not dead:
            return 0
        raise CommandError(f"the {dead[0].name} ended by itself (exit status {dead[0].process.returncode})")


async def _refuse_a_second_one(socket_path: Path) -> None:
    try:
        client = await AgentClient.connect(socket_path, "penstock up")
    except AgentUnavailable:
        return
    await client.close()
    raise CommandError(
        f"an agent runs already at {socket_path}; stop it first, or give --set runtime_dir=DIR --set state_dir=DIR2"
    )


def _make(key: str, directory: Path, mode: int) -> None:
    try:
        paths.make_configured(key, directory, mode)
    except OSError as error:
        raise CommandError(str(error)) from None


def _free_port(wanted: int) -> int:
    """Return the port if it is free, else 0: any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, wanted))
        except OSError:
            return 0
    return wanted
