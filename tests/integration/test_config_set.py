"""``penstock config set`` and ``show --running`` on a real agent and a real master: set values are in force, and
shown.
"""

from __future__ import annotations

import contextlib
import io
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from tests.integration.conftest import Daemon, end_launcher, start
from tests.integration.test_reloading import Log

AGENT = '# of this host\nt_alloc = 0.8  # as measured\nhttp = "127.0.0.1:0"\n'


class Bed:
    """An agent and its master, each with a file, for all tests here."""

    def __init__(self, directory: Path) -> None:
        self.files = {name: directory / f"{name}.toml" for name in ("agent", "master")}
        self.write_files()
        self.master = self._start("master", http="127.0.0.1:0", store=directory / "kept.db")
        self.agent = self._start(
            "agent", master=self.master.addresses["listen"], node="test", runtime_dir=directory / "run",
            state_dir=directory / "state", memory_bytes=2**30,
        )  # fmt: skip
        self.logs = {"agent": Log(self.agent.log), "master": Log(self.master.log)}
        self.log = self.logs["agent"]
        self.log.until("linked to the master")

    def _start(self, name: str, **settings: Any) -> Daemon:
        environment = {"PENSTOCK_AGENT_LEASE_S": "8ms"}
        file = self.files[name]
        return start(name, file.parent, "--config", str(file), environment=environment, **settings)

    def write_files(self) -> None:
        self.files["agent"].write_text(AGENT)
        self.files["agent"].chmod(0o640)
        self.files["master"].write_text('ordering = "ejf"\n')

    def as_at_first(self) -> None:
        self.write_files()
        for name, daemon in (("agent", self.agent), ("master", self.master)):
            daemon.process.send_signal(signal.SIGHUP)
            self.logs[name].until("configuration reloaded")

    def close(self) -> None:
        for log in self.logs.values():
            log.close()
        assert self.agent.stop() == 0, self.agent.log.read_text()
        end_launcher(self.files["agent"].parent / "run")
        assert self.master.stop() == 0, self.master.log.read_text()

    def penstock(self, *arguments: str, status: int = 0) -> str:
        """Return the output of ``penstock config``, or its one line of error."""
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patched.setenv("PENSTOCK_SOCKET", str(self.agent.socket))
            assert main(["config", *arguments]) == status, err.getvalue()
        if status:
            return err.getvalue()
        out.seek(0)  # which writes what is buffered
        return out.read()

    def running(self, daemon: str = "agent") -> dict[str, Any]:
        return dict(json.loads(self.penstock("show", daemon, "--running", "--json")))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    made = Bed(tmp_path_factory.mktemp("config"))
    yield made
    made.close()


@pytest.fixture
def bed(running: Bed) -> Iterator[Bed]:
    yield running
    running.as_at_first()


def test_an_agent_s_keys_are_set_shown_kept_and_unset(bed: Bed) -> None:
    assert bed.running()["t_alloc"] | {"description": ""} == {
        "value": 0.8, "written": "0.8", "source": "file", "where": f"{bed.files['agent']}:2", "default": "0.9",
        "live": True, "description": "", "after_restart": "",
    }  # fmt: skip
    said = bed.penstock("set", "t_alloc=0.6", "preempt_after_cpu=1")
    assert said.splitlines() == [
        "t_alloc: 0.8 → 0.6  (until the next reload or restart; --persist makes it permanent)",
        "preempt_after_cpu: 0 → 1  (until the next reload or restart; --persist makes it permanent)",
    ]
    line = bed.log.until("configuration set")
    assert line["changed"] == {"t_alloc": "0.8 → 0.6", "preempt_after_cpu": "0 → 1"}
    status = bed.agent.status()
    assert status["t_alloc"] == 0.6, "it is in force"
    where = f"set by {line['by']} at "
    assert status["configuration"]["t_alloc"]["value"] == "0.6"
    assert status["configuration"]["t_alloc"]["where"].startswith(where)
    shown = bed.running()["t_alloc"]
    assert (shown["source"], shown["after_restart"]) == ("set", "0.8") and shown["where"].startswith(where)
    table = [each for each in bed.penstock("show", "agent", "--running").splitlines() if each.startswith("t_alloc ")]
    assert "0.6 (after a restart 0.8)" in table[0] and where in table[0]

    bed.agent.process.send_signal(signal.SIGHUP)
    assert bed.log.until("configuration reloaded")["changed"] == {"t_alloc": "0.6 → 0.8", "preempt_after_cpu": "1 → 0"}
    assert bed.agent.status()["configuration"] == {}

    bed.penstock("set", "--persist", "t_alloc=0.7", "repair_interval_s=1min")
    assert bed.files["agent"].read_text() == (
        '# of this host\nt_alloc = 0.7  # as measured\nhttp = "127.0.0.1:0"\nrepair_interval_s = "1min"\n'
    )
    assert bed.files["agent"].stat().st_mode & 0o777 == 0o640
    bed.agent.process.send_signal(signal.SIGHUP)
    assert bed.log.until("configuration reloaded")["changed"] == {}
    assert bed.running()["repair_interval_s"]["where"] == f"{bed.files['agent']}:4"
    assert "but $PENSTOCK_AGENT_LEASE_S overrides the file" in bed.penstock("set", "--persist", "lease_s=1ms")
    bed.penstock("set", "opportunistic=false", "t_preempt_cpu=50e-2", "preempt_after_disk=7")
    assert bed.agent.status()["t_alloc"] == 0.0, "UBIS's knobs"
    assert bed.running()["t_preempt_cpu"]["value"] == 0.5


def test_a_value_that_cannot_be_set_changes_nothing_and_is_refused_in_one_line(bed: Bed) -> None:
    for arguments, fault in (
        (("t_aloc=0.5",), "unknown key 't_aloc'; did you mean 't_alloc'?"),
        (("t_alloc=3",), "t_alloc: a number of at most 2 expected"),
        (("ordering=ejf",), "ordering is a key of the master, not of the agent; add `--daemon master`"),
        (("--daemon", "master", "t_preempt_cpu=1"), "t_preempt_cpu is a key of the agent, not of the master; "),
        (("lease_s=soon",), "lease_s: "),
        (("http=127.0.0.1:1",), f"http: cannot change while the daemon runs; write it into {bed.files['agent']}"),
        (("t_alloc_tuned=true", "t_alloc=0.4"), "t_alloc_least: 0.5 is above t_alloc (0.4)"),
        (("t_alloc=0.4", "preempt_after=0"), "preempt_after: a whole number of at least 1 expected"),
        (("t_alloc=0.4", "t_alloc=0.5"), "t_alloc is given twice"),
        (("--daemon", "master", "ept_s=10ms"), "ept_s: 0.01 is below interval_s"),
        (("t_alloc",), "KEY=VALUE"),
    ):
        said = bed.penstock("set", "--persist", *arguments, status=2)
        assert said.startswith("penstock config: ") and fault in said and said.count("\n") == 1, said
        assert "values: " not in said
    assert bed.agent.status()["t_alloc"] == 0.8
    assert bed.files["agent"].read_text() == AGENT


def test_the_master_is_asked_through_the_agent(bed: Bed) -> None:
    said = json.loads(bed.penstock("set", "--daemon", "master", "--json", "ordering=las_mq", "ept_s=2s"))
    assert [(one["key"], one["was"], one["now"]) for one in said["changed"]] == [
        ("ordering", '"ejf"', '"las_mq"'), ("ept_s", '"0s"', '"2s"')
    ]  # fmt: skip
    assert (said["file"], said["persisted"]) == (str(bed.files["master"]), False)
    status = bed.master.status()
    assert status["ordering"] == "las_mq" and set(status["configuration"]) == {"ordering", "ept_s"}
    assert " on test at " in status["configuration"]["ordering"]["where"]
    assert bed.running("master")["ordering"]["source"] == "set"
    assert bed.running("master")["listen"]["source"] == "environment"


def test_a_file_that_cannot_be_written_is_named_with_the_lines_to_write(bed: Bed) -> None:
    bed.files["agent"].write_text("t_alloc = \n")
    said = bed.penstock("set", "--persist", "t_alloc=0.7", status=1)
    assert (
        f"the change is in force, but not persistent: {bed.files['agent']}:1: Invalid value" in said
        and "write there: t_alloc = 0.7" in said
    )
    assert bed.agent.status()["t_alloc"] == 0.7
    assert bed.files["agent"].read_text() == "t_alloc = \n"
    assert sorted(path.name for path in bed.files["agent"].parent.glob("*.new")) == []
