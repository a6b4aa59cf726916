"""``penstock config show|check``: every key with its source; every fault with its line, and exit status 2."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.unit.penstock.cli.conftest import Fails


@pytest.fixture(autouse=True)
def _nothing_of_ours_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("penstock.cli.config._usual", lambda daemon: None)


def test_show_has_value_source_and_purpose_of_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('node = "alpha"\nnetwork_link_bytes_per_s = "1Gbit/s"\n')
    monkeypatch.setenv("PENSTOCK_AGENT_T_ALLOC", "0.8")
    assert main(["config", "show", "agent", str(path), "--set", "lease_s=10ms", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["node"] | {"description": ""} == {
        "value": "alpha", "written": '"alpha"', "source": "file", "where": f"{path}:1", "default": '""', "live": False,
        "after_restart": "",
        "description": "",
    }  # fmt: skip
    assert (shown["network_link_bytes_per_s"]["value"], shown["network_link_bytes_per_s"]["written"]) == (
        125_000_000, '"125MB/s"'
    )  # fmt: skip
    assert (shown["t_alloc"]["value"], shown["t_alloc"]["where"]) == (0.8, "$PENSTOCK_AGENT_T_ALLOC")
    assert (shown["lease_s"]["written"], shown["lease_s"]["source"]) == ('"10ms"', "--set")
    assert (shown["preempt_order"]["written"], shown["preempt_order"]["source"]) == ('"newest"', "default")
    assert main(["config", "show", "agent", str(path)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert set(shown) <= set(lines)
    assert f"{path}:1" in lines["node"] and lines["t_alloc"].rstrip().endswith("*")


def test_show_prints_no_character_that_controls_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[2J.toml"
    path.write_text('tenants = { "e\x9bve" = "a\x9b2J" }\nlisten = "/run/m.sock"\n', encoding="utf-8")
    assert main(["config", "show", "master", str(path)]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("tenants")]
    assert r'{ "e\u009bve" = "a\u009b2J" }' in line
    assert f"{tmp_path}/a�[2J.toml:1" in line
    assert line.isprintable()


def test_check_is_silent_where_nothing_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "master.toml"
    path.write_text('listen = "/run/m.sock"\nordering = "las_mq"\nlas_mq_queues = 2\n')
    assert main(["config", "check", "master", str(path)]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("daemon", "text", "faults"),
    [
        (
            "agent",
            't_alloc = 3.0\nnod = "x"',
            ["1: t_alloc: a number of at most 2 expected", "2: unknown key 'nod'; did you"],
        ),
        (
            "agent",
            '\nmaster = "head"\nhttp = "x"',
            ["3: http: 'x' is not", "2: master: 'head' is neither ADDRESS:PORT nor"],
        ),
        (
            "agent",
            f"job_wait_max_s = inf\nlease_s = nan\nmemory_bytes = {10**400}",
            [
                "1: job_wait_max_s: a finite number below 2^63",
                "2: lease_s: a finite number below 2^63",
                "3: memory_bytes: a finite number below 2^63",
            ],
        ),
        ("master", "weights = { a = inf }", ["1: weights.a: a finite number below 2^63 expected"]),
        ("agent", "t_alloc_tuned = true\nt_alloc_least = 0.95", ["2: t_alloc_least: 0.95 is above t_alloc (0.9)"]),
        ("master", 'ept_s = "10ms"\nlisten = "x"', ["2: listen: 'x' is neither", "1: ept_s: 0.01 is below interval_s"]),
        (
            "master",
            'las_mq_queues = 2\nlas_mq_weights = [1.0]\nlisten = "/run/m.sock"',
            ["2: las_mq_weights: 1 are given for 2 queues"],
        ),
        ("master", 'listen = "/run/m.sock"\n[bundles]\nbig = "lots"', ["2: bundles.big: "]),
    ],
)
def test_check_reports_every_fault_with_its_line(
    daemon: str, text: str, faults: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    assert main(["config", "check", daemon, str(path)]) == 2
    out, said = capsys.readouterr()
    assert not out
    lines = said.splitlines()
    assert len(lines) == len(faults)
    for line, fault in zip(lines, faults, strict=True):
        assert line.startswith(f"penstock {daemon}: {path}:{fault}"), line


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["show", "agnet"], "agnet"),
        (["show"], "the following arguments are required: agent|master"),
        (["set", "agent", "t_alloc=0.5"], "KEY=VALUE: 'agent' is not KEY=VALUE; write `--daemon agent`"),
        (["show", "agent", "a.toml", "--config", "b.toml"], "FILE is given twice"),
        (["shaw", "agent"], "shaw"),
        (["check", "agent", "/does/not/exist"], "/does/not/exist: No such file or directory"),
        (["show", "agent", "--set", "t_alloc"], "--set: 't_alloc' is not KEY=VALUE"),
    ],
)
def test_bad_input_is_one_line(argv: list[str], said: str, fails: Fails) -> None:
    assert said in fails(2, "config", *argv)
