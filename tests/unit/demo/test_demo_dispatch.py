"""Where the demo runs, and with which arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo import dispatch


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, list[str]]]:
    """Record commands instead of running them: on the host (status 7) or in the machine (status 5)."""
    calls: list[tuple[str, list[str]]] = []

    def on_host(arguments: list[str]) -> int:
        calls.append(("host", arguments))
        return 7

    def in_machine(source: str, *, user_mode: bool) -> int:
        calls.append(("machine", dispatch.machine_command(source, user_mode=user_mode)))
        return 5

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dispatch, "demonstrate", on_host)
    monkeypatch.setattr(dispatch, "_in_machine", in_machine)
    return calls


def controllers(monkeypatch: pytest.MonkeyPatch, directory: Path, names: str | None) -> None:
    if names is not None:
        (directory / "cgroup.controllers").write_text(names)
    monkeypatch.setattr(dispatch, "cgroup2_mount", lambda: directory)


@pytest.mark.parametrize("names", ["", "cpuset pids\n", None])
def test_in_the_machine_where_it_has_not(
    ran: list[tuple[str, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    names: str | None,
) -> None:
    controllers(monkeypatch, tmp_path, names)
    assert dispatch.main({"INPUT": str(tmp_path)}) == 5
    ((where, command),) = ran
    assert where == "machine"
    host, guest = command[: command.index("--")], command[command.index("--") + 1 :]
    assert f"{tmp_path}:demo-input" in host
    assert "--user-mode" in host
    assert guest[guest.index("--megabytes") + 1] == "60"
    assert guest[-2:] == ["--input", "demo-input"]
    (line,) = capsys.readouterr().out.splitlines()
    assert "no cgroup v2 controllers (" in line
    assert "memory" in line


@pytest.mark.parametrize("status", [69, 71])
def test_under_qemu_with_less_text_where_no_user_mode_machine_can_be_had(
    ran: list[tuple[str, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    status: int,
) -> None:
    def in_machine(source: str, *, user_mode: bool) -> int:
        ran.append(("machine", dispatch.machine_command(source, user_mode=user_mode)))
        return status if user_mode else 69

    controllers(monkeypatch, tmp_path, None)
    monkeypatch.setattr(dispatch, "_in_machine", in_machine)
    assert dispatch.main({}) == 69
    (_, first), (_, second) = ran
    assert "--user-mode" in first
    assert "--user-mode" not in second
    assert second[second.index("--megabytes") + 1] == "10"
    told = capsys.readouterr()
    assert "under QEMU" in told.out
    assert "DEMO=host make demo" in told.err


@pytest.mark.parametrize("written", [None, "{", '{"runs": {}}'])
def test_a_picture_that_cannot_be_drawn_is_a_failure(
    ran: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str | None
) -> None:
    controllers(monkeypatch, tmp_path, None)
    monkeypatch.setattr(dispatch, "_in_machine", lambda source, user_mode: 0)
    if written is not None:
        (tmp_path / "demo-out").mkdir()
        (tmp_path / "demo-out" / "timeline.json").write_text(written)
    assert dispatch.main({}) != 0


@pytest.mark.parametrize(
    ("names", "asked", "where", "status"),
    [("cpuset cpu io memory pids\n", "", "host", 7), ("cpu memory\n", "qemu", "machine", 5), (None, "host", "host", 7)],
    ids=["where it has the controllers", "qemu forced", "the host forced"],
)
def test_it_runs_on_the_host_or_under_qemu(
    ran: list[tuple[str, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    names: str | None,
    asked: str,
    where: str,
    status: int,
) -> None:
    controllers(monkeypatch, tmp_path, names)
    assert dispatch.main({"DEMO": asked, "INPUT": str(tmp_path)} if asked else {"INPUT": str(tmp_path)}) == status
    ((found, command),) = ran
    assert found == where and "--user-mode" not in command
    assert asked or command == ["--out", "demo-out", "--input", str(tmp_path)]


@pytest.mark.parametrize("environment", [{"DEMO": "moon"}, {"INPUT": "/nowhere/at/all"}])
def test_bad_input_is_one_line(
    ran: list[tuple[str, list[str]]], environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatch.main(environment) == 2
    assert not ran
    (line,) = capsys.readouterr().err.splitlines()
    assert next(iter(environment)) in line
