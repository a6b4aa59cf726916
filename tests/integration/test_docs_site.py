"""The site is built without a warning, every page is in it, and reading it asks no other host for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]


class _Fetched(HTMLParser):
    """The addresses that a browser loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"img", "script", "iframe", "source"} or (tag == "link" and given.get("rel") != "canonical"):
            self.addresses += [value for key in ("src", "href") if (value := given.get(key))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", out / "cache", _ROOT / "docs", out / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return out / "html"


def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(_ROOT / "docs").with_suffix("") for path in (_ROOT / "docs").rglob("*.md")}
    made = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert pages <= made
    navigation = (site / "index.html").read_text(encoding="utf-8")
    for page in pages - {Path("index")}:
        assert f'href="{page}.html"' in navigation, f"{page} is in no list of docs/index.md"


def test_a_page_in_a_folder_keeps_its_links_to_pages_of_the_site(site: Path) -> None:
    page = (site / "benchmarks" / "mix.html").read_text(encoding="utf-8")
    assert 'href="../ranks.html#the-order"' in page
    assert "bench/mix/README" not in page, "a page outside the site"


def test_reading_it_sends_no_request_to_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        parser = _Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.addresses
        for address in parser.addresses:
            assert not re.match(r"(https?:)?//", address), f"{page.name} loads {address}"
            if not address.startswith(("#", "data:")):
                target = (page.parent / address.split("?")[0].split("#")[0]).resolve()
                assert target.exists(), f"{page.name} loads {address}, which is not there"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet
