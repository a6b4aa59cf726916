"""The tests that docs/security.md names exist. Its statements about keys are true."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from agent.config import AgentConfig

_ROOT = Path(__file__).resolve().parents[4]
_PAGE = (_ROOT / "docs/security.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", _PAGE)
    assert len(named) > 30
    for path, name in named:
        text = (_ROOT / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"{path}::{name}"


def test_every_limit_of_a_user_is_on_the_page() -> None:
    keys = [field.encode_name for field in msgspec.structs.fields(AgentConfig)]
    limits = {key for key in keys if key.startswith("user_max_")}
    assert limits == set(re.findall(r"`(user_max_\w+)`", _PAGE))
