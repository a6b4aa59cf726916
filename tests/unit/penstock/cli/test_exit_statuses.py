"""One convention of exit statuses, in every command's help."""

from __future__ import annotations

import pytest

from penstock.cli import catalogue, exit_statuses, main
from penstock.cli.exit_statuses import Status


def test_every_statement_is_about_an_existing_command() -> None:
    assert set(exit_statuses.OF_COMMAND) <= set(main.names())


def test_every_help_ends_with_them() -> None:
    for command in catalogue.commands():
        for one in command.parts or (command,):
            if one.parser is not None:
                assert one.help.rstrip().endswith(exit_statuses.section(one.name)), one.name


def test_they_come_in_order_with_a_text() -> None:
    for name in [*main.names(), ""]:
        rows = exit_statuses.of(name)
        numbers = [int(key) for key in rows if key.isdigit()]
        assert numbers == sorted(numbers)
        assert all(rows.values())
        assert {"0", "1", "2"} <= set(rows), name
    assert list(exit_statuses.of("drain")) == ["0", "1", "2", "3", "4", "130"]
    assert list(exit_statuses.of("run"))[-2:] == ["128 + n", "other"]
    assert exit_statuses.of("ca issue") == exit_statuses.of("ca") != exit_statuses.of("kill")
    assert exit_statuses.of("status") == exit_statuses.COMMON


def test_an_interrupt_and_a_missing_command_have_theirs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "find", lambda name: interrupted)
    assert main.main(["run"]) == Status.INTERRUPTED
    monkeypatch.undo()
    assert main.main(["rnu"]) == Status.USAGE
    assert "did you mean 'run'" in capsys.readouterr().err


def test_every_command_is_in_one_group_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    grouped = [name for group in main.GROUPS.values() for name in group]
    assert sorted(grouped) == sorted(main.names())
    assert main.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines() if line.startswith("  ")] == grouped


@pytest.mark.parametrize("argv", [["help", "kill"], ["kill", "--help"]])
def test_help_of_a_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(argv)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: penstock kill")
    assert main.main(["help"]) == 0
    assert "  kill " in capsys.readouterr().out
