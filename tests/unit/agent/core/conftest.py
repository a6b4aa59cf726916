"""The node that a test of a core acts on."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def bed(request: pytest.FixtureRequest) -> Any:
    """Return the ``Bed`` of the test's file, as it is without arguments."""
    return request.module.Bed()
