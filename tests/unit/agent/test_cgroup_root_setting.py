"""The values of ``cgroup_root``."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cgroup_root import vacate
from agent.config import AgentConfig
from penstock.config.settings import SettingsError


@pytest.mark.parametrize("value", ["auto", "scope", "/sys/fs/cgroup/mine"])
def test_the_containers_tree_is_chosen_or_an_absolute_path(value: str) -> None:
    AgentConfig(cgroup_root=value).check()


@pytest.mark.parametrize("value", ["nope", "penstock.slice/mine", ""])
def test_any_other_value_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match=f"cgroup_root: auto, scope or an absolute path expected, not '{value}'"):
        AgentConfig(cgroup_root=value).check()


def test_a_directory_that_is_no_cgroup_stays_as_it_is(tmp_path: Path) -> None:
    """The agent then starts, and reports that limits are not enforced."""
    vacate(tmp_path)
    vacate(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
