"""The wheel as operators install it: packages, static files, man pages."""

from __future__ import annotations

import configparser
import zipfile
from pathlib import Path

import pytest

from penstock.cli.main import names

hatchling = pytest.importorskip("hatchling.builders.wheel", reason="hatchling builds the wheel")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    directory = tmp_path_factory.mktemp("dist")
    (built,) = hatchling.WheelBuilder(str(ROOT)).build(directory=str(directory), versions=["standard"])
    return zipfile.ZipFile(built)


def test_man_pages_are_where_man_looks(wheel: zipfile.ZipFile) -> None:
    shared = {name.partition(".data/data/")[2] for name in wheel.namelist() if ".data/data/" in name}
    assert {"share/man/man1/penstock.1", "share/man/man5/agent.toml.5", "share/man/man5/master.toml.5"} <= shared
    assert {f"share/man/man1/penstock-{name}.1" for name in names()} <= shared


def test_the_top_level_names_are_those_of_docs_architecture(wheel: zipfile.ZipFile) -> None:
    names = {name.partition("/")[0] for name in wheel.namelist()}
    assert {name for name in names if not name.endswith((".data", ".dist-info"))} == {
        "penstock", "agent", "master", "simulator",
    }  # fmt: skip


def test_commands_and_static_files_are_there(wheel: zipfile.ZipFile) -> None:
    found = set(wheel.namelist())
    assert {"penstock/web/static/node.html", "penstock/cli/main.py", "agent/py.typed"} <= found
    points = configparser.ConfigParser()
    (declared,) = (name for name in found if name.endswith("entry_points.txt"))
    points.read_string(wheel.read(declared).decode())
    for target in [*points["console_scripts"].values(), *points["penstock.commands"].values()]:
        assert f"{target.partition(':')[0].replace('.', '/')}.py" in found
