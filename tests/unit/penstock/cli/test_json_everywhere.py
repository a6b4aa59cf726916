"""`--json`: every command that prints facts has it, and prints one document."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from agent.uninstall import command as uninstall
from penstock.cli import catalogue
from penstock.cli.main import main
from penstock.model.container import Limits
from tests.fakes.agent import FakeAgent
from tests.unit.penstock.cli.conftest import Penstock

#: Commands without it, and why.
WITHOUT = {
    "up": "runs until it is ended; --port-file is its JSON",
    "follow": "prints nothing",
    "top": "is for people; `penstock status --json` is for programs",
    "completion": "prints a script for a shell",
    "spark-config": "prints a configuration for Spark, in its form",
    "config check": "prints faults, on standard error",
    "ca init": "prints the path that it made",
    "ca issue": "prints the paths that it made",
    "ca renew": "prints the paths that it made",
    "ca revoke": "prints the path of the list that it made",
}


def every() -> Iterator[catalogue.Command]:
    for command in catalogue.commands():
        yield from command.parts or (command,)


def test_every_command_has_it_or_a_reason() -> None:
    without = {
        command.name
        for command in every()
        if command.parser is None or "--json" not in command.parser._option_string_actions
    }
    assert without - set(WITHOUT) == set(), "give these --json, or say why they have none"
    assert set(WITHOUT) - without <= {"ca init", "ca issue", "ca renew", "ca revoke"}


@pytest.mark.parametrize("argv", [["run", "--detach", "--json", "--cpu", "1", "--", "x"], ["adopt", "--json", "PID"]])
async def test_a_container_that_goes_on(fake: FakeAgent, penstock: Penstock, argv: list[str]) -> None:
    fake.not_enforced = {"cpu_cores": "no cpu"}
    status, out, err = await penstock(*(word.replace("PID", str(os.getpid())) for word in argv))
    assert (status, err) == (0, "")
    assert json.loads(out) == {"container": "c-1", "not_enforced": {"cpu_cores": "no cpu"}}


async def test_run_in_the_foreground_prints_the_output_of_the_command(fake: FakeAgent, penstock: Penstock) -> None:
    status, out, err = await penstock("run", "--json", "--", "x")
    assert (status, out, fake.called("launch")) == (2, "", [])
    assert err.startswith("penstock run: --json: only with --detach")


async def test_resize_and_kill(fake: FakeAgent, penstock: Penstock) -> None:
    assert (await penstock("run", "--detach", "--memory", "1M", "x"))[0] == 0
    status, out, err = await penstock("resize", "--json", "c-1", "--pids", "10")
    assert (status, err) == (0, "")
    limits = json.loads(out)["limits"]
    assert (limits["pids_max"], limits["memory_max_bytes"]) == (10, 1 << 20)
    assert fake.containers["c-1"].limits == Limits(memory_max_bytes=1 << 20, pids_max=10)
    status, out, err = await penstock("kill", "--json", "c-1")
    assert (status, err) == (0, "")
    (row,) = json.loads(out)
    assert (row["container"], row["ended"]["by"], row["ended"]["exit_status"]) == ("c-1", "cancelled", 137)


async def test_kill_prints_nothing_without_the_option(fake: FakeAgent, penstock: Penstock) -> None:
    assert (await penstock("run", "--detach", "x"))[0] == 0
    assert await penstock("kill", "c-1") == (0, "", "")
    assert await penstock("kill") == (2, "", "penstock kill: the following arguments are required: CONTAINER\n")


@pytest.mark.timeout(30)
async def test_kill_kills_all_before_it_waits_for_one(fake: FakeAgent, penstock: Penstock) -> None:
    fake.killed_together = 2
    for _ in range(2):
        assert (await penstock("run", "--detach", "x"))[0] == 0
    status, out, err = await penstock("kill", "--json", "c-1", "c-2")
    assert (status, err) == (0, "")
    assert [row["container"] for row in json.loads(out)] == ["c-1", "c-2"]


@pytest.mark.parametrize(("dry", "removed"), [([], [True, False]), (["--dry-run"], [False, False])])
def test_uninstall(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dry: list[str], removed: list[bool]
) -> None:
    gone: list[str] = []

    def fails() -> None:
        raise OSError(16, "Device or resource busy")

    removals = [
        SimpleNamespace(what="cgroups", remove=lambda: gone.append("cgroups"), kills=False),
        SimpleNamespace(what="launcher", remove=fails, kills=False),
    ]
    monkeypatch.setattr(uninstall, "removals", lambda *_, **__: removals)
    status = uninstall.main(["--json", *dry])
    captured = capsys.readouterr()
    rows = json.loads(captured.out)
    assert [(row["what"], row["removed"]) for row in rows] == list(zip(["cgroups", "launcher"], removed, strict=True))
    assert gone == ([] if dry else ["cgroups"])
    assert (status, rows[1]["why"]) == ((0, "") if dry else (1, "Device or resource busy"))
    assert captured.err == ("" if dry else "penstock uninstall: launcher: Device or resource busy\n")


def test_lists_of_the_shipped_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["las_mq/fig01"]
