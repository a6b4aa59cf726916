"""The roles: their variables are declared, and the daemons read the files that they write."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from agent.config import AgentConfig
from master.config import MasterConfig
from penstock.config import settings
from tests.installed_wheel import NODE, ON_MASTERS

_ANSIBLE = Path(__file__).resolve().parents[3] / "ansible"
_ROLES = sorted(path.name for path in (_ANSIBLE / "roles").iterdir())


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("role", _ROLES)
def test_every_variable_is_declared_and_no_other(role: str) -> None:
    specs = _yaml(_ANSIBLE / "roles" / role / "meta/argument_specs.yml")["argument_specs"]
    declared = {name: option for spec in specs.values() for name, option in spec.get("options", {}).items()}
    defaults = _yaml(_ANSIBLE / "roles" / role / "defaults/main.yml")
    assert set(defaults) == {name for name, option in declared.items() if not option.get("required")}
    assert all(option.get("description") and option.get("type") for option in declared.values())
    for name, option in declared.items():
        if not option.get("required") and "{{" not in str(defaults[name]):
            assert option["default"] == defaults[name], name
        assert name.endswith(("_token", "_operator", "_reader")) <= bool(option.get("no_log")), name


def _extras(hostname: str, groups: dict[str, list[str]]) -> list[str]:
    default = _yaml(_ANSIBLE / "roles/penstock_venv/defaults/main.yml")["penstock_venv_extras"]
    expression = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False).compile_expression(
        default.removeprefix("{{").removesuffix("}}"), undefined_to_none=False
    )
    found: list[str] = expression(inventory_hostname=hostname, groups=groups)
    return found


def test_masters_get_the_library_that_forecasts_settings_never_seen() -> None:
    groups = {"penstock_masters": ["head"], "penstock_agents": ["head", "node1"]}
    assert _extras("head", groups) == list(ON_MASTERS)
    assert _extras("node1", groups) == list(NODE)
    assert _extras("node1", {"penstock_agents": ["node1"]}) == list(NODE)


def test_the_extras_that_are_installed_are_those_of_the_wheel() -> None:
    with (_ANSIBLE.parent / "pyproject.toml").open("rb") as file:
        declared = tomllib.load(file)["project"]["optional-dependencies"]
    assert set(_extras("head", {"penstock_masters": ["head"]})) <= set(declared)
    tasks = (_ANSIBLE / "roles/penstock_venv/tasks/main.yml").read_text()
    assert "| basename }}[{{ penstock_venv_extras | join(',') }}]'" in tasks


def _render(daemon: str, config: dict[str, Any]) -> str:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, autoescape=False)
    environment.filters["to_json"] = lambda value, **options: json.dumps(value, **options)
    template = environment.from_string((_ANSIBLE / f"roles/penstock_{daemon}/templates/{daemon}.toml.j2").read_text())
    return template.render({"ansible_managed": "Ansible managed", f"penstock_{daemon}_effective": config})


@pytest.mark.parametrize("daemon", ["agent", "master"])
def test_every_value_is_written_as_toml(daemon: str) -> None:
    config = {
        "text": 'a "quoted" \\ path, Grüße', "flag": True, "off": False, "count": 7, "ratio": 0.5,
        "list": [1.0, 2.0], "empty": [], "table": {"research/eve": 2.0, "a b": {"deep": ["x"]}}, "none": {},
    }  # fmt: skip
    assert tomllib.loads(_render(daemon, config)) == config


def test_a_master_reads_the_example(tmp_path: Path) -> None:
    example = _yaml(_ANSIBLE / "inventory.example.yml")
    for daemon, of, group in (
        ("master", MasterConfig, "penstock_masters"), ("agent", AgentConfig, "penstock_agents"),
    ):  # fmt: skip
        config = example[group]["vars"][f"penstock_{daemon}_config"]
        file = tmp_path / f"{daemon}.toml"
        file.write_text(_render(daemon, config))
        table = settings.load(of, file)
        assert all(getattr(table, key) == value for key, value in config.items())


@pytest.mark.parametrize("daemon", ["master", "agent", "containers"])
def test_a_unit_runs_from_the_link_that_the_playbook_sets(daemon: str) -> None:
    unit = (_ANSIBLE.parent / f"systemd/penstock-{daemon}.service").read_text()
    assert f"ExecStart=/opt/penstock/{daemon}/bin/python -I -m " in unit
    tasks = "".join(path.read_text() for path in (_ANSIBLE / "roles").rglob("tasks/*.yml"))
    links = (f"dest: /opt/penstock/{daemon}\n", f"{{path: /opt/penstock/{daemon}, state: link, ")
    assert any(link in tasks for link in links)


def test_the_page_of_the_playbooks_names_each() -> None:
    page = (_ANSIBLE / "README.md").read_text()
    for playbook in _ANSIBLE.glob("*.yml"):
        if playbook.name != "inventory.example.yml":
            assert f"`{playbook.name}`" in page
