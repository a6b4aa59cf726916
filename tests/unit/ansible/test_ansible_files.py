"""The module that has files, links and directories as they should be."""

from __future__ import annotations

import grp
import importlib.util
import os
import pwd
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

_FILE = Path(__file__).resolve().parents[3] / "ansible/library/penstock_files.py"
_ME, _GROUP = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("penstock_files", _FILE)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def _one(path: Path, **options: Any) -> dict[str, Any]:
    plain = {"state": "file", "content": None, "once": False, "target": None, "mode": None}
    return plain | {"path": str(path), "owner": _ME, "group": _GROUP} | options


def _all(home: Path) -> list[dict[str, Any]]:
    return [
        _one(home / "above/directory", state="directory", mode="0750"),
        _one(home / "above/directory/file", content="Grüße\n", mode="0600"),
        _one(home / "link", state="link", target="above"),
        _one(home / "empty"),
        _one(home / "token", once=True, mode="0640"),
        _one(home / "old", state="absent"),
        _one(home / "never", state="absent"),
    ]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/inside").touch()
    (tmp_path / "link").symlink_to("elsewhere")
    return tmp_path


def test_all_is_as_it_should_be_and_the_second_time_nothing_is_done(module: ModuleType, home: Path) -> None:
    secrets = {str(home / "token"): "first"}
    done = module.bring(_all(home), secrets, check=False)
    assert done["changed_paths"] == [each["path"] for each in _all(home) if not each["path"].endswith("never")]
    assert (home / "above/directory/file").read_text() == "Grüße\n"
    assert (home / "link").readlink() == Path("above") and (home / "empty").read_bytes() == b""
    assert (home / "token").read_text() == "first" and not (home / "old").exists()
    modes = {
        name: (home / name).stat().st_mode & 0o7777 for name in ("above/directory", "above/directory/file", "token")
    }
    assert modes == {"above/directory": 0o750, "above/directory/file": 0o600, "token": 0o640}
    assert sorted(path.name for path in home.iterdir()) == ["above", "empty", "link", "token"], "nothing is left over"
    again = module.bring(_all(home), {str(home / "token"): "second"}, check=False)
    assert (again["changed"], again["changed_paths"], again["diff"]) == (False, [], [])
    assert (home / "token").read_text() == "first"


def test_asked_it_reports_the_same_and_does_nothing(module: ModuleType, home: Path) -> None:
    before = sorted(home.rglob("*"))
    asked = module.bring(_all(home), {}, check=True)
    assert sorted(home.rglob("*")) == before and (home / "link").readlink() == Path("elsewhere")
    assert asked == module.bring(_all(home), {}, check=False)


@pytest.mark.parametrize("change", ["content", "mode"])
def test_a_changed_file_is_restored(module: ModuleType, tmp_path: Path, change: str) -> None:
    wanted = [_one(tmp_path / "file", content="right\n")]
    module.bring(wanted, {}, check=False)
    if change == "content":
        (tmp_path / "file").write_text("wrong\n")
    else:
        (tmp_path / "file").chmod(0o666)
    assert module.bring(wanted, {}, check=False)["changed"]
    assert ((tmp_path / "file").read_text(), (tmp_path / "file").stat().st_mode & 0o7777) == ("right\n", 0o644)


def test_the_target_of_a_link_is_not_written_to(module: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "file").symlink_to("theirs")
    (tmp_path / "gone").symlink_to("theirs")
    module.bring([_one(tmp_path / "file", content="ours"), _one(tmp_path / "gone", state="absent")], {}, check=False)
    assert (tmp_path / "theirs").read_text() == "theirs" and not (tmp_path / "file").is_symlink()
    assert not (tmp_path / "gone").is_symlink()


@pytest.mark.parametrize("there", ["", "old secret"])
def test_a_secret_is_written_but_not_shown(module: ModuleType, tmp_path: Path, there: str) -> None:
    file = tmp_path / "key"
    if there:
        file.write_text(there)
    done = module.bring([_one(file, mode="0600")], {str(file): "new secret"}, check=False)
    assert file.read_text() == "new secret" and done["changed"]
    assert "old secret" not in str(done) and "new secret" not in str(done)


def test_a_missing_user_can_own_nothing(module: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="nobody-of-that-name"):
        module.bring([_one(tmp_path / "file", owner="nobody-of-that-name")], {}, check=False)
    assert list(tmp_path.iterdir()) == []


def test_a_mode_that_is_none_is_named(module: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="file: mode: 'rw-' is not octal"):
        module.bring([_one(tmp_path / "file", mode="rw-")], {}, check=False)


def test_no_directory_gives_way_to_a_file(module: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(OSError, match="there"):
        module.bring([_one(tmp_path / "there")], {}, check=False)


def test_ansible_takes_it(tmp_path: Path) -> None:
    files = [{key: value for key, value in _one(tmp_path / "file", content="said\n").items() if value is not None}]
    secret = {str(tmp_path / "key"): "do not show"}
    files.append({"path": str(tmp_path / "key"), "owner": _ME, "group": _GROUP})
    task = {"name": "It", "penstock_files": {"files": files, "secrets": secret}}
    play = [{"name": "Here", "hosts": "localhost", "gather_facts": False, "tasks": [task]}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    environment = {**os.environ, "ANSIBLE_LIBRARY": str(_FILE.parent), "ANSIBLE_NOCOLOR": "1", "HOME": str(tmp_path)}
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", "-c", "local", "--diff", "-vvv",
         "-e", f"ansible_python_interpreter={sys.executable}", tmp_path / "play.yml"],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "changed=1" in done.stdout, done.stdout + done.stderr
    assert "+said" in done.stdout and "do not show" not in done.stdout + done.stderr
    assert (tmp_path / "key").read_text() == "do not show"
