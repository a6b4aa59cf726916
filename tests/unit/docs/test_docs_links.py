"""Links between the pages, as GitHub follows them: files that are there, headings that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs_pages import PAGES, ROOT, prose

_LINK = re.compile(r"\]\(([^)\s]+)\)")
#: In a comment, a docstring or a message.
_NAMED = re.compile(r"\bdocs/[\w./-]+\.md\b")
_ROOMS = ("agent", "bench", "demo", "master", "penstock", "research", "simulator", "tests")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """Of each heading, as GitHub makes them."""
    return {slug(heading) for heading in _HEADING.findall(prose(page))}


def slug(heading: str) -> str:
    """Lower case, without punctuation but ``-`` and ``_``, a ``-`` for each space."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {link}: there is no such file"
        if anchor:
            assert anchor in _anchors(target), (
                f"{page.name}: {link}: no such heading; there are {sorted(_anchors(target))}"
            )


def test_pages_that_sources_name_are_there() -> None:
    for source in (path for room in _ROOMS for path in (ROOT / room).rglob("*.py")):
        for page in _NAMED.findall(source.read_text(encoding="utf-8")):
            assert (ROOT / page).exists(), f"{source.relative_to(ROOT)}: there is no {page}"


def test_slugs_are_github_s() -> None:
    assert slug("Preemption (UBIS §IV.C)") == "preemption-ubis-ivc"
    assert slug("T_alloc: how far") == "t_alloc-how-far"
