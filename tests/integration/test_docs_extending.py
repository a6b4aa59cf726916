"""docs/extending.md: each addition is made in a copy of the repository, and the page's commands run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs_pages import ROOT, statements

_PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
_SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", _PAGE, re.MULTILINE | re.DOTALL))
_BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./]+)`:\n\n)?^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_COPIED = ("agent", "master", "penstock", "simulator", "docs", "tests", "pyproject.toml")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in _COPIED:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(".hypothesis"))
        else:
            shutil.copy(source, target)
    return tmp_path


@pytest.mark.parametrize("section", _SECTIONS)
def test_the_page_s_addition_works(section: str, copy: Path) -> None:
    commands = []
    for block in _BLOCK.finditer(_SECTIONS[section]):
        match block["language"]:
            case "python":
                (copy / block["file"]).write_text(block["body"], encoding="utf-8")
            case "diff":
                _run(["git", "apply", "-"], copy, block["body"])
            case _:
                commands += statements(block["body"])
    assert commands
    for command in commands:
        _run(["sh", "-ec", command], copy)


def _run(command: list[str], where: Path, given: str = "") -> None:
    """With the copy's code, not that which is installed."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(where),
        "PYTEST_ADDOPTS": "-q -p no:cacheprovider",
        "GIT_CEILING_DIRECTORIES": str(where.parent),
    }
    done = subprocess.run(command, cwd=where, env=environment, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
