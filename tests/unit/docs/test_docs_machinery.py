"""The checks of the documentation find the mistakes that they are for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs_commands import WrongError, check, simple_commands
from tests.docs_pages import ROOT, blocks, statements, transcript
from tests.docs_session import _NEVER, _pattern


@pytest.mark.parametrize(
    "command",
    [
        "penstock run --memroy 64M -- sort big.txt",
        "penstock rnu -- true",
        "penstock run --memory much -- true",
        "penstock submit a.toml && penstock jbos",
        "penstock status ; penstock top --onec",
        "FOO=1 sudo penstock check --paht /srv",
        "penstock status | penstock kill",
        "penstock simulate ubis/fig3 --jsno",
        "penstock ca isue node01",
        "pip install 'penstock[agent,master]'",
        "pip install penstock",
        "pip install Penstock==0.1.0",
        "python3 -m pip install penstock",
        "python -m pip install 'penstock[dask]'",
        "pip install 'dist/penstock-0.1.0-py3-none-any.whl[agnet]'",
        "pip install dist/penstock-0.0.0-py3-none-any.whl",
        "pip install '.[agnet]'",
        "make tset",
        "python -m bench.no_such_thing",
        "python -m bench no_such_thing",
        "python -m bench.prediction --no-such-option",
        "ansible-playbook -i inventory.yml stie.yml",
        "ansible-playbook -i inventory.yml site.yml --difff",
        "ansible-playbook -i inventory.yml site.yml -e penstock_srial=4",
        "systemctl restart penstock-agnet",
        "no-such-program --at-all",
        "penstock run -- 'unclosed",
    ],
)
def test_a_mistake_in_a_command_is_found(command: str) -> None:
    with pytest.raises(WrongError):
        check(command)


@pytest.mark.parametrize(
    "command",
    [
        "penstock run --memory 64M -- sort --no-such-option big.txt",
        "CONTAINER=$(penstock run --detach -- sleep 60) # a comment; penstock rnu",
        "penstock status --json | head -1 > out.txt 2>&1",
        "pip install 'dist/penstock-0.1.0-py3-none-any.whl[agent,master]'",
        "pip install '.[agent,master]' 'dask>=2024.8'",
        "make demo DEMO=host",
        "cat > job.toml <<'END'\nname = 'penstock rnu'\nEND",
        "ansible-playbook -i inventory.yml site.yml --check --diff -e penstock_serial=4",
        "systemctl reload penstock-agent penstock-master",
    ],
)
def test_correct_text_is_not_found(command: str) -> None:
    check(command)


def test_commands_are_taken_apart() -> None:
    assert list(simple_commands("A=1 sudo penstock top ; penstock run -- a 2>x | b && (c d)")) == [
        ["penstock", "top"],
        ["penstock", "run", "--", "a"],
        ["b"],
        ["c", "d"],
    ]


def test_lines_that_belong_together_are_one_command() -> None:
    assert statements("a \\\n  b\n# alone\n\ncat > f <<'END'\n# inside\nEND\nc\n") == [
        "a \\\n  b",
        "cat > f <<'END'\n# inside\nEND",
        "c",
    ]
    assert transcript("$ a\nout\n$ b <<E\n> x\n> E\n") == [("a", "out\n"), ("b <<E\nx\nE", "")]


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("job done in 0.1s\n", "job done in 12.75s\n"),
        ("a   b  c\n", "a b       c  \n"),
        ("at 14:30:00\n", "at 09:05:59\n"),
        ("first\n…\nlast\n", "first\nany\nthing\nlast\n"),
        ("first\n…\nlast\n", "first\nlast\n"),
        ("c-1c5aed79-4 …\nand c-1c5aed79-4\n", "c-00aa11bb-12 x\nand c-00aa11bb-12\n"),
    ],
)
def test_output_may_vary_where_it_varies(shown: str, printed: str) -> None:
    assert re.fullmatch(_pattern(shown)[0], printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("job done in 0.1s\n", "job failed in 0.1s\n"),
        ("3 nodes\n", "4 nodes\n"),
        ("first\nlast\n", "first\nany\nlast\n"),
        ("first\n", "first\nany\n"),
        ("c-1c5aed79-4 and c-1c5aed79-4\n", "c-00aa11bb-12 and c-00aa11bb-13\n"),
    ],
)
def test_output_may_not_vary_elsewhere(shown: str, printed: str) -> None:
    assert not re.fullmatch(_pattern(shown)[0], printed)


@pytest.mark.parametrize(
    "command", ["sudo systemctl stop ssh", "true && make demo", "penstock uninstall", "pip install x"]
)
def test_a_command_that_changes_the_host_is_never_typed(command: str) -> None:
    assert _NEVER.search(command)


def test_the_dry_run_is() -> None:
    assert not _NEVER.search("penstock uninstall --dry-run")


def test_marks_belong_to_the_next_block(tmp_path: Path) -> None:
    page = ROOT / "docs" / "made-up.md"
    parsed = "<!-- test: parse; it takes a cluster -->\n```sh\na\n```\n"
    text = f"{parsed}<!-- file: x.toml -->\n```toml\nb = 1\n```\n```sh\nc\n```\n<!-- session\nd\n-->\n"
    (tmp_path / page.name).write_text(text, encoding="utf-8")
    found = blocks(tmp_path / page.name)
    assert [(each.language, each.how, each.file) for each in found] == [
        ("sh", "parse", ""),
        ("toml", "run", "x.toml"),
        ("sh", "run", ""),
        ("sh", "run", ""),
    ]
    assert found[0].reason == "it takes a cluster"
