"""CI shows each test that could have run and did not, and each that passed at its second run only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SKIPS = {
    "in a test": "import pytest\ndef test_it(): pytest.skip({why!r})\n",
    "in a mark": "import pytest\n@pytest.mark.skipif(True, reason={why!r})\ndef test_it(): pass\n",
    "in a module": "import pytest\npytest.skip({why!r}, allow_module_level=True)\n",
}


def _pytest(directory: Path, ci: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Without plugins: the conftest alone decides, and importing them takes four times as long as the rest."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(directory)]
    around = {**os.environ, "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, env=around, cwd=directory, capture_output=True, text=True, check=False)


def _exit_status(directory: Path, ci: str, why: str) -> int:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", directory)
    for number, text in enumerate(_SKIPS.values()):
        (directory / f"test_skips_{number}.py").write_text(text.format(why=why))
    (directory / "test_runs.py").write_text("def test_runs(): pass\n")
    done = _pytest(directory, ci)
    skipped = " 3 skipped" in done.stdout
    assert skipped == (done.returncode == 0), done.stdout
    return done.returncode


@pytest.mark.parametrize(
    ("ci", "why", "fails"),
    [("true", "only root", True), ("true", "elsewhere: a kernel", False), ("", "only root", False)],
)
def test_a_skip_fails_in_ci_where_the_test_could_have_run(tmp_path: Path, ci: str, why: str, fails: bool) -> None:
    assert (_exit_status(tmp_path, ci, why) != 0) == fails


@pytest.mark.parametrize("where", _SKIPS)
def test_each_kind_of_skip_is_seen(tmp_path: Path, where: str) -> None:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_skips.py").write_text(_SKIPS[where].format(why="no gcc"))
    assert "skipped, which is a failure in CI" in _pytest(tmp_path, "true").stdout


def test_on_the_real_kernel_nothing_belongs_elsewhere(tmp_path: Path) -> None:
    kernel = tmp_path / "tests/kernel"
    kernel.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    assert _exit_status(kernel, "true", "elsewhere: a kernel") != 0


def test_each_rerun_is_named_with_its_first_failure(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "integration").mkdir()
    (tmp_path / "integration/test_flaky.py").write_text(
        "runs = []\ndef test_it():\n    runs.append(1)\n    assert len(runs) == 2, 'too slow'\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = _pytest(tmp_path, "true", "-p", "pytest_rerunfailures")
    assert "RERUN integration/test_flaky.py::test_it - AssertionError: too slow\n" in done.stdout, done.stdout
    assert done.returncode == 0
