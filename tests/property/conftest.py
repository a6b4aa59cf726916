"""Show the compared values also where an assertion fails in a machine that several tests share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "tests.property.node_books",
    "tests.property.node_callers",
    "tests.property.node_processes",
    "tests.property.scheduling_connections",
    "tests.property.scheduling_master",
    "tests.property.scheduling_work",
)
