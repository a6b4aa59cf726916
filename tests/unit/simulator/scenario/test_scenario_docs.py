"""docs/simulate.md: its keys are those that are declared, and its examples and those of docs/research.md run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from penstock.cli.errors import CommandError
from research.papers.command import main as research
from simulator.command import simulate
from simulator.fluid import Spec
from simulator.scenario import MODELS

_DOCS = Path(__file__).parents[4] / "docs"
_TEXT, _RESEARCH = ((_DOCS / page).read_text(encoding="utf-8") for page in ("simulate.md", "research.md"))
_BLOCKS = re.findall(r"```sh\n(.*?)```", _TEXT + _RESEARCH, re.DOTALL)
_COMMANDS = [line for block in _BLOCKS for line in block.splitlines()]
_KEY = re.compile(r"^\| `((?:workload|server|policy)\.[a-z_.]+)` \| (.*?) \|", re.MULTILINE)


def _declared(of: type[msgspec.Struct], prefix: str = "") -> dict[str, str]:
    """Dotted key → default as the page writes it; tables that always have a default are not listed themselves."""
    found: dict[str, str] = {}
    for field in msgspec.structs.fields(of):
        key = f"{prefix}{field.encode_name}"
        tables = re.findall(r"simulator\.fluid\.spec\.(\w+)", str(field.type))
        inner = [getattr(__import__("simulator.fluid.spec", fromlist=["_"]), name) for name in tables]
        if not inner:
            required = field.default is msgspec.NODEFAULT
            found[key] = "required" if required else msgspec.json.encode(field.default).decode()
        elif field.default in ((), None):
            found[key] = "–"
        for table in inner:
            found |= _declared(table, f"{key}.")
    return found


def test_every_key_of_the_fluid_model_is_described_with_its_default() -> None:
    assert dict(_KEY.findall(_TEXT)) == _declared(Spec)


def test_every_model_is_described() -> None:
    assert re.findall(r"^\| `(\w+)` \| (?:jobs with|executors whose|monotasks and)", _TEXT, re.MULTILINE) == list(
        MODELS
    )


@pytest.mark.parametrize("line", _COMMANDS)
def test_the_examples_run(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(simulate, "cores", lambda: 1)  # to start processes would take longer than the simulations
    (example,) = re.findall(r"```toml\n(.*?)```", _TEXT, re.DOTALL)
    (tmp_path / "first.toml").write_text(example, encoding="utf-8")
    rows = "".join(f"job{n}\t{n}\t1\t{10 ** (n % 5)}\t{n}\t1\n" for n in range(200))
    (tmp_path / "FB-2010_samples_24_times_1hr_0.tsv").write_text(rows, encoding="utf-8")
    run = {"penstock simulate ": simulate.main, "python -m research ": research}
    (start,) = (each for each in run if line.startswith(each))
    try:
        assert run[start](shlex.split(line.removeprefix(start))) == 0
    except CommandError as error:
        pytest.fail(str(error))
    assert capsys.readouterr().out
