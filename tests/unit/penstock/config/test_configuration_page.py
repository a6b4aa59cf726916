"""docs/configuration.md agrees with the declaration, and its example is a configuration."""

from __future__ import annotations

import re
from pathlib import Path

from agent.config import AgentConfig
from docs import make_configuration
from penstock.config.settings import load

DOCS = Path(__file__).resolve().parents[4] / "docs"
PAGE = (DOCS / "configuration.md").read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_declarations() -> None:
    assert make_configuration.updated(PAGE) == PAGE, "run python docs/make_configuration.py"


def test_the_example_can_be_read(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    file = tmp_path / "agent.toml"
    file.write_text(found[1], encoding="utf-8")
    example = load(AgentConfig, file)
    assert (example.memory_bytes, example.network_link_bytes_per_s) == (24 * 1024**3, 125_000_000)
    assert example.node_settings(instance="x", disks=1).preemption.samples("cpu") == 1
