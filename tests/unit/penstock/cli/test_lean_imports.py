"""What commands leave out of their imports, and that it is there when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Runs in a fresh interpreter, after the libraries have been imported as for `penstock submit`.
_BEGIN = """
import sys
from penstock.cli.main import find
find("submit")
import penstock.cli.run, penstock.cli.session, penstock.cli.submission
"""


def _printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-I", "-c", _BEGIN + code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_command_imports_none_of_the_modules_that_it_does_not_need() -> None:
    unwanted = {"typing_extensions", "uuid", "platform", "decimal", "numbers", "msgspec.inspect", "msgspec.toml"}
    unwanted |= {"msgspec._json_schema", "textwrap", "gettext", "locale", "urllib", "urllib.parse", "ipaddress"}
    unwanted |= {"string", "ntpath"} | ({"fnmatch"} if sys.version_info < (3, 12) else set())  # 3.12: pathlib uses it
    unwanted |= {"msgpack", "socket", "signal", "selectors", "struct"}
    unwanted |= {"penstock.wire.agent_methods", "penstock.wire.jobs_api"}
    assert not unwanted & set(_printed("print(*sys.modules)").split())


_TABLE = """
from penstock.cli import lean_imports
lean_imports.load("rich")
from penstock.cli.render import Column, Fitted, console, field
import penstock.cli.render_jobs
"""


def test_a_table_imports_none_of_the_modules_that_it_does_not_need() -> None:
    shown = "console().print(Fitted([Column('job', field('job'))], [{'job': 'a :smile:'}]))"
    header, row, modules = _printed(f"{_TABLE}{shown}; print(*sys.modules)").splitlines()
    assert (header.strip(), row.strip()) == ("job", "a :smile:")
    unwanted = {"inspect", "ast", "dis", "tokenize", "copy", "pickle", "random", "fractions", "decimal", "logging"}
    unwanted |= {"asyncio", "rich._emoji_codes", "rich.pretty", "rich.progress", "rich.traceback"}
    assert not unwanted & set(modules.split())


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("import inspect; print(inspect.signature(lambda a: a))", "(a)"),
        ("import dataclasses; print(dataclasses.inspect.isfunction(print))", "False"),
        ("import copy, dataclasses; print(dataclasses.asdict(Column('a', []))['of'], copy.copy([1]))", "[] [1]"),
        ("import random; print(random.Random(1).randint(1, 1))", "1"),
        ("from rich.style import Style; print(Style(meta={'a': 1}).meta, len(Style(link='b').link_id) > 0)",
         "{'a': 1} True"),
        ("from rich.text import Text; print(Text.from_markup('[@click=f(1)]a[/]').spans[0].style.meta)",
         "{'@click': ('f', (1,))}"),
        ("from rich._ratio import ratio_resolve; from rich.table import Column as C; "
         "print(ratio_resolve(9, [type('E', (), dict(size=None, ratio=1, minimum_size=1))] * 2))", "[4, 5]"),
    ],
)  # fmt: skip
def test_what_rich_was_imported_without_is_there_when_it_is_used(code: str, printed: str) -> None:
    assert _printed(_TABLE + code) == printed


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("import msgspec; print(msgspec.json.schema(int))", "{'type': 'integer'}"),
        ("import msgspec; print(msgspec.inspect.type_info(int).ge)", "None"),
        ("from msgspec import inspect; print(isinstance(inspect.type_info(int), inspect.IntType))", "True"),
        ("import pathlib; print(pathlib.Path('/a b').as_uri())", "file:///a%20b"),
        ("import urllib.parse; print(urllib.parse.quote('a b'))", "a%20b"),
        ("import argparse, textwrap, gettext; print(gettext.gettext('a'))", "a"),
        ("import decimal, uuid; print(decimal.Decimal(1), uuid.UUID(int=0).int)", "1 0"),
        ("import pathlib; print(pathlib.PureWindowsPath('a/b').drive, pathlib.PurePath('a.py').match('*.py'))", "True"),
        ("import msgspec; print(msgspec.toml.decode('a = 1'))", "{'a': 1}"),
        ("import string; print(string.Template('$a').substitute(a=1))", "1"),
        ("import datetime; print(datetime.datetime.strptime('2026', '%Y').replace(tzinfo=datetime.UTC))",
         "2026-01-01 00:00:00+00:00"),
        ("import tomllib; print(tomllib.loads('a = 1_0\\nb = 0x1F\\nc = 07:32:00\\nd = 1979-05-27'))",
         "{'a': 10, 'b': 31, 'c': datetime.time(7, 32), 'd': datetime.date(1979, 5, 27)}"),
        ("import typing; print(typing.get_type_hints(type('A', (), {'__annotations__': {'a': 'int'}})))",
         "{'a': <class 'int'>}"),
        ("import re; print(re.compile('a').__class__.__name__)", "Pattern"),
    ],
)  # fmt: skip
def test_what_was_left_out_is_there_when_it_is_used(code: str, printed: str) -> None:
    assert _printed(code) == printed
