"""docs/http.md has the operations as they are declared."""

from __future__ import annotations

from docs import make_http


def test_the_tables_are_up_to_date() -> None:
    page = make_http.PAGE.read_text(encoding="utf-8")
    assert make_http.updated(page) == page, "run python docs/make_http.py"
