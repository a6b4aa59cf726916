"""A command that is not installed, or that is no longer a command: one line names its replacement."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

from penstock.cli.main import main


@pytest.mark.parametrize(("command", "missing", "extra"), [("agent", "psutil", "agent"), ("master", "numpy", "master")])
def test_a_daemon_without_its_extra_names_the_package_to_install(
    command: str, missing: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *arguments, **keywords)

    for name in [name for name in sys.modules if name.partition(".")[0] in {extra, missing}]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    assert main([command, "--help"]) == 1
    assert f"pip install 'penstock[{extra}]'" in capsys.readouterr().err


def test_a_former_command_is_named_with_its_successor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper"]) == 2
    said = capsys.readouterr().err
    assert "python -m research" in said and "did you mean" not in said
