"""Every fenced block and every command of README and docs is one that a test tries; nothing in them is misspelt."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agent.config import AgentConfig
from master.config import MasterConfig
from master.reservations.requests_file import read as read_requests
from penstock.cli.jobfile import of_file
from penstock.config.settings import Sources
from penstock.config.settings import read as read_settings
from simulator.scenario import load as load_scenario
from tests.docs_commands import WrongError, check, penstock
from tests.docs_pages import COMMANDS, DATA, ELSEWHERE, PAGES, PROSE, ROOT, Block, blocks, spans, steps

_ALL = [block for page in PAGES for block in blocks(page)]


def _of(*languages: str) -> pytest.MarkDecorator:
    found = [block for block in _ALL if block.language in languages]
    return pytest.mark.parametrize("block", found, ids=[block.name for block in found])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_has_its_language(page: Path) -> None:
    for block in blocks(page):
        known = (*COMMANDS, *DATA, *PROSE)
        assert block.language in known, f"{block.name}: {block.language or 'no language'}; one of {', '.join(known)}"
        if block.language == "text":
            commands = re.search(r"^(\$ |penstock (?!\w+: )|sudo |make |pip |ansible)", block.text, re.MULTILINE)
            assert not commands, f"{block.name}: commands belong into a block of sh or console"


@pytest.mark.parametrize(("page", "language"), ELSEWHERE)
def test_a_test_of_a_page_names_the_page(page: str, language: str) -> None:
    assert any(block.language == language for block in blocks(ROOT / "docs" / page))
    assert page in (ROOT / ELSEWHERE[page, language]).read_text(encoding="utf-8")


@pytest.mark.parametrize("block", [block for block in _ALL if block.how != "run"], ids=lambda block: block.name)
def test_a_block_that_is_not_run_has_its_reason(block: Block) -> None:
    assert len(block.reason) > 10
    if block.how == "by":
        assert block.page.name in (ROOT / block.reason).read_text(encoding="utf-8")


@_of(*COMMANDS)
def test_every_command_is_understood_by_its_program(block: Block) -> None:
    assert steps(block), f"{block.name} is empty"
    for command, output in steps(block):
        if output.startswith("penstock"):  # the page shows a mistake, and the answer to it
            continue
        try:
            check(command)
        except WrongError as error:
            pytest.fail(f"{block.name}: {command}\n{error}", pytrace=False)


def test_the_playbooks_can_be_read(tmp_path: Path) -> None:
    playbooks = sorted(path.name for path in (ROOT / "ansible").glob("*.yml") if "inventory" not in path.name)
    done = subprocess.run(
        ["ansible-playbook", "--syntax-check", "-i", "inventory.example.yml", *playbooks],
        cwd=ROOT / "ansible",
        env={**os.environ, "HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_sentences_are_understood(page: Path) -> None:
    for line, text in spans(page):
        for command in _spelt_out(text) if text.startswith(("penstock ", "make ", "python -m ")) else ():
            try:
                if command.startswith("penstock "):
                    penstock(_words(command)[1:], complete=False)
                else:
                    check(command)
            except WrongError as error:
                pytest.fail(f"{page.name}:{line}: `{text}`\n{error}", pytrace=False)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a sketch that was cut off within quotes
        return command.replace("'", "").split()


def _spelt_out(text: str) -> Iterator[str]:
    """``a|b`` is both; from ``…``, ``[`` or ``<`` on it is a sketch."""
    text = re.split(r"\s*[…\[<;]", text, maxsplit=1)[0]
    choice = re.search(r"[\w-]+(\|[\w-]+)+", text)
    if choice is None:
        yield text
        return
    for each in choice[0].split("|"):
        yield from _spelt_out(text.replace(choice[0], each, 1))


@_of("toml")
def test_toml_is_accepted_by_its_reader(block: Block, tmp_path: Path) -> None:
    document = tomllib.loads(block.text)
    file = tmp_path / "example.toml"
    file.write_text(block.text, encoding="utf-8")
    if "task" in document:
        for name in {name for task in document["task"] for name in task.get("inputs", ())}:
            (tmp_path / name).write_text("so many bytes", encoding="utf-8")
        assert of_file(file).graph
    elif "model" in document:
        assert load_scenario(file).points()
    else:
        for daemon in (AgentConfig, MasterConfig):
            name = daemon.__name__.removesuffix("Config").lower()
            head = block.text.splitlines()[0]
            if f"/etc/penstock/{name}.toml" in head:  # a whole file
                read_settings(daemon, Sources(file, {}), daemon.check)
            elif "/etc/penstock/" not in head:
                read_settings(daemon, Sources(file, {}))


@_of("yaml")
def test_yaml_is_accepted_by_its_reader(block: Block) -> None:
    document = yaml.safe_load(block.text)
    if "distributed" in document:
        for module in document["distributed"]["worker"]["preload"]:
            importlib.import_module(module)
    elif "scrape_configs" in document:
        assert all(job["job_name"] and job["static_configs"] for job in document["scrape_configs"])
    else:
        _inventory(block, document)


def _inventory(block: Block, document: dict[str, object]) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "ansible").rglob("*.yml")]
    for key in _keys(document):
        if key not in {"all", "children", "hosts", "vars"} and "." not in key and not re.fullmatch(r"[a-z]+\d+", key):
            assert any(re.search(rf"\b{key}\b", text) for text in texts), (
                f"{block.name}: nothing in ansible/ knows {key}"
            )


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _keys(inner)


@_of("json")
def test_json_is_accepted_by_its_reader(block: Block) -> None:
    document = json.loads(block.text)
    if "requests" in document:
        assert read_requests(block.text.encode(), block.name).requests
    else:
        sources = (
            path.read_text(encoding="utf-8")
            for room in ("penstock", "agent", "master")
            for path in (ROOT / room).rglob("*.py")
        )
        assert any(f'"{document["event"]}"' in source for source in sources), f"{block.name}: nothing logs this"


@_of("python")
def test_python_is_a_program_whose_imports_are_there(block: Block) -> None:
    tree = compile(block.text, block.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(tree, ast.Module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                importlib.import_module(each.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            for each in node.names:
                assert hasattr(module, each.name), f"{block.name}: {node.module} has no {each.name}"
