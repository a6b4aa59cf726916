"""The pages have the operations and documents as they are declared."""

from __future__ import annotations

import pytest

from docs import make_http


@pytest.mark.parametrize("page", make_http.PAGES)
def test_the_tables_are_up_to_date(page: str) -> None:
    assert make_http.updated()[page] == (make_http.DOCS / page).read_text(encoding="utf-8"), "run docs/make_http.py"
