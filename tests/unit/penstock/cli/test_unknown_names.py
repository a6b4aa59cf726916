"""An unknown name is exit status 4, in every command."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import catalogue, exit_statuses
from penstock.cli.errors import CommandError
from penstock.cli.exit_statuses import Status
from penstock.cli.main import main
from penstock.cli.session import failures_told
from penstock.client.signals import Signals
from penstock.transport.peer import RpcPeer
from penstock.wire import agent_methods, jobs_api, relayed_methods
from penstock.wire.connection import read_params
from penstock.wire.errors import RpcError, bad_request, refused
from tests.fakes.agent import FakeAgent
from tests.fakes.http_pages import http_pages

#: Command → how it names something that is not there.
NAMES = {
    "adopt": ("adopt", str(2**31 - 1)),
    "resize": ("resize", "c-0", "--pids", "7"),
    "follow": ("follow", "c-0", "none"),
    "kill": ("kill", "c-0"),
    "logs": ("logs", "c-0"),
    "submit": ("submit", "job.toml", "--reservation", "r-0"),
    "jobs": ("jobs", "j-0"),
    "cancel": ("cancel", "j-0"),
    "explain": ("explain", "j-0"),
    "profile": ("profile", "show", "srot"),
    "reserve": ("reserve", "atom(<1GB,1core>, 1, 1, 1s, 1s)", "--update", "r-0"),
    "reservations": ("reservations", "--delete", "r-0"),
    "drain": ("drain", "n-0", "--no-wait"),
    "undrain": ("undrain", "n-0"),
    "ca renew": ("ca", "renew", "--directory", "ca", "n-0"),
    "ca revoke": ("ca", "revoke", "--directory", "ca", "n-0"),
}
#: The same in other words.
MORE = [
    ("jobs", "j-0", "--wait"),
    ("jobs", "--order", "j-0"),
    ("submit", "job.toml", "--reservation", "r-0", "--detach"),
    ("profile", "plot", "sort", "--run", "x"),
    ("profile", "show", "sort", "--user", "eve"),
    ("drain", "n-0", "--timeout", "1s"),
]
#: Those that name nothing that could be missing, and those that name only files, or words of the command line: 2.
NONE = {
    *("run", "status", "top", "up", "agent", "master", "check", "uninstall", "dask-worker", "spark-config"),
    *("config show", "config check", "config set", "ca init", "ca issue", "ca show"),
    *("completion", "simulate", "plan", "place"),
}
_MISSING_NAMES = {str(2**31 - 1), "c-0", "r-0", "j-0", "srot", "x", "eve", "n-0"}
_MISSING = {
    "cancel_job": ("there is no job 'j-0'", "job"),
    "explain_job": ("there is no job 'j-0'", "job"),
    "order_jobs": ("there is no job 'j-0'", "job"),
    "drain": ("no node 'n-0'", "nodes"),
    "undrain": ("no node 'n-0'", "nodes"),
    "update_reservation": ("there is no reservation 'r-0'", "reservation"),
    "delete_reservation": ("there is no reservation 'r-0'", "reservation"),
    "register_job": ("there is no reservation 'r-0'", "reservation"),
}
_CALLS = {**agent_methods.REQUESTS, **relayed_methods.REQUESTS}


class Empty(FakeAgent):
    """Of a cluster in which there is nothing."""

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        if method == "jobs":
            return jobs_api.Jobs(jobs=[], unknown=read_params(params, jobs_api.ListJobs).jobs)
        if method in _MISSING:
            assert method in _CALLS
            message, field = _MISSING[method]
            raise bad_request(message, field=field)
        return super().request(peer, method, params)


def _page(path: str, _: object) -> tuple[int, bytes]:
    """A page of a master that has kept one run of ann's ``sort``."""
    known = b'[{"application": "sort", "user": "ann"}]'
    row, one = b"[[1]]", b'"settings": {"input_bytes": 0, "cores": 1, "memory_bytes": 1}, "stages": [1]'
    run = b'{"run": "j-1", "ended_at": 1, %b, "mean": %b, "peak": %b}' % (one, row, row)
    run = b'{"application": "sort", "user": "ann", "slot_s": 3, "resources": ["cores"], "runs": [%b]}' % run
    found = {"/profiles": known, "/profiles/ann/sort": run}.get(path)
    return (200, found) if found else (404, b'{"error": "there is none"}')


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with http_pages(_page) as port:
        monkeypatch.setenv("PENSTOCK_MASTER_HTTP", f"127.0.0.1:{port}")
        yield


def test_every_command_names_something_or_nothing() -> None:
    every = {one.name for command in catalogue.commands() for one in command.parts or (command,)}
    assert not NAMES.keys() & NONE
    assert every - NAMES.keys() - NONE == set(), (
        "name something that is not there to these, or say that they name nothing"
    )


@pytest.mark.parametrize("name", NAMES)
def test_their_help_has_it(name: str) -> None:
    assert "4" in exit_statuses.of(name)


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("argv", [*NAMES.values(), *MORE], ids=" ".join)
async def test_it_is_four_and_one_line_has_the_reason(
    argv: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text('name = "j"\n[[task]]\nname = "a"\ncommand = "true"\n', encoding="utf-8")
    if argv[0] == "ca":
        assert main(["ca", "init", "--directory", "ca"]) == 0
    agent = Empty(tmp_path)
    await agent.start()
    monkeypatch.setenv("PENSTOCK_SOCKET", str(agent.socket))
    monkeypatch.setattr(Signals, "_catch", lambda self: None)  # the command runs in a thread
    capsys.readouterr()
    status = await asyncio.wait_for(asyncio.to_thread(main, list(argv)), 60)
    await agent.stop()
    captured = capsys.readouterr()
    assert (status, captured.out) == (Status.UNKNOWN, ""), captured.err
    assert captured.err.startswith(f"penstock {argv[0]}: ")
    assert captured.err.count("\n") == 1
    assert any(name in captured.err for name in _MISSING_NAMES.intersection(argv))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (bad_request("no container 'c'", field="container", remedy="see"), "no container 'c' (see)"),
        (refused("container 'c' belongs to root", field="container"), "container 'c' belongs to root"),
        (refused("only operators see it", field="everybody", remedy="ask"), "only operators see it (ask)"),
        (bad_request("too long", field="limits.cpus", remedy="less"), "limits.cpus: too long (less)"),
    ],
)
def test_a_message_that_names_the_object_does_not_begin_with_the_field_of_the_request(
    error: RpcError, line: str
) -> None:
    with pytest.raises(CommandError) as caught, failures_told(named="container"):
        raise error
    assert str(caught.value) == line
