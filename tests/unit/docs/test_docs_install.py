"""No page has readers ask a package index for Penstock, which is on none; the files that they are told to build
exist.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs_pages import PAGES, ROOT

#: Comments and sentences, too, which no parser of commands reads.
_FROM_AN_INDEX = re.compile(
    r"\b(?:install|add|run)\s+(?:-\S+\s+)*['\"]?penstock(?:\[|['\"`]|[=<>~!]=|\s*(?:#|$))", re.MULTILINE | re.IGNORECASE
)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_page_installs_penstock_from_an_index(page: Path) -> None:
    assert _FROM_AN_INDEX.findall(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "pip install penstock", "pip install --upgrade 'penstock[agent,master]'", "(`pip install \"penstock[ca]\"`)",
        "pipx install penstock  # the light client", "uv tool install penstock", "pip install penstock==0.1.0",
        "pip install Penstock\nthen",
    ],
)  # fmt: skip
def test_an_installation_from_an_index_is_found(text: str) -> None:
    assert _FROM_AN_INDEX.search(text)


@pytest.mark.parametrize("text", ["pip install 'dist/penstock-0.1.0-py3-none-any.whl[agent]'", "apt-get install qemu"])
def test_other_installations_are_not_found(text: str) -> None:
    assert not _FROM_AN_INDEX.search(text)


def test_the_readme_and_the_quickstart_install_from_the_checkout_and_from_the_wheel() -> None:
    for name in ("README.md", "docs/quickstart.md"):
        page = (ROOT / name).read_text(encoding="utf-8")
        assert "pip install '.[agent,master]'" in page
        assert "make wheel" in page


def test_every_extra_for_users_is_in_the_quickstart() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    table = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8").partition("| extra |")[2].partition("\n\n")[0]
    listed = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")
    }
    former = {"milp"}  # its contents are in master
    assert listed == extras - {"bench", "demo", "dev", "docs", "test"} - former
