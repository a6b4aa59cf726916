"""The rules of the house that no linter knows: the names that pure rooms may not use, and how long a file may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
PURE_ROOMS = (
    "penstock/model",
    "penstock/wire",
    "penstock/opgraph",
    "agent/core",
    "agent/queues",
    "master/core",
    "master/ordering",
    "master/placement",
    "master/opportunistic",
)
#: Where files have at most this number of lines.
_LIMITED = ("penstock", "agent", "master", "simulator", "research", "tests/fakes")
_MAX_LINES = 400

#: Time, chance, files, sockets, processes, concurrency and logs: a decision would depend on more than its event.
# fmt: off
_FORBIDDEN_MODULES = frozenset((
    "aiohttp", "asyncio", "cgroupspy", "concurrent", "ctypes", "datetime", "fcntl", "glob", "io", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "psutil", "pyroute2", "queue", "random", "requests", "resource", "sched",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "structlog", "subprocess", "tempfile",
    "threading", "time", "urllib", "uuid", "uvloop", "zoneinfo",
))
# fmt: on
_FORBIDDEN_NAMES = frozenset({"__import__", "breakpoint", "eval", "exec", "input", "open", "print"})
#: As attributes, too: a clock or a die that a caller passed as an object is still one.
_FORBIDDEN_CALLS = frozenset(
    {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "time_ns", "utcnow", "urandom"}
    | {"getrandbits", "randbytes", "randint", "randrange", "shuffle", "default_rng", "import_module"}
)
_ASYNC = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)


def violations(source: str) -> list[str]:
    """Return the names in a module's source that a pure room may not use: ``line: name``."""
    return [f"{getattr(node, 'lineno', 0)}: {what}" for node in ast.walk(ast.parse(source)) for what in _faults(node)]


def _faults(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (f"import {each.name}" for each in names if _top(each.name) in _FORBIDDEN_MODULES)
        case ast.ImportFrom(module=str(module), level=0) if _top(module) in _FORBIDDEN_MODULES:
            yield f"from {module} import …"
        case ast.Name(id=name) if name in _FORBIDDEN_NAMES:
            yield name
        case ast.Attribute(attr=name) if name in _FORBIDDEN_CALLS:
            yield f".{name}"
        case _ if isinstance(node, _ASYNC):
            yield "async"


def _top(module: str) -> str:
    return module.partition(".")[0]


def _sources(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (_ROOT / room).rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(_ROOT).as_posix()


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_every_pure_room_exists(room: str) -> None:
    assert any(path.name != "__init__.py" for path in _sources(room)), f"{room} has no module"


@pytest.mark.parametrize("path", _sources(*PURE_ROOMS), ids=_name)
def test_pure_rooms_are_pure(path: Path) -> None:
    found = violations(path.read_text(encoding="utf-8"))
    assert not found, f"{_name(path)} must stay pure; pass it in as an argument: {', '.join(found)}"


@pytest.mark.parametrize(
    "planted",
    [
        "import os",
        "import os.path as p",
        "from time import monotonic",
        "def f():\n    from random import random\n    return random()",
        "from datetime import datetime",
        "import asyncio",
        "async def f(): pass",
        "async def f(x):\n    async with x: pass",
        "print('x')",
        "open('x')",
        "say = print",
        "x = input()",
        "def f(clock): return clock.monotonic()",
        "def f(np): return np.random.default_rng()",
        "__import__('os')",
    ],
)
def test_a_planted_violation_is_found(planted: str) -> None:
    assert violations(planted)


@pytest.mark.parametrize(
    "innocent",
    [
        "from __future__ import annotations",
        "from penstock.model import Capacity",
        "from .records import JobRecord",
        "import math, heapq, collections.abc",
        "def handle(event, now): return [now]",
        "class A:\n    def open(self): return self.time",
    ],
)
def test_allowed_names_are_not_found(innocent: str) -> None:
    assert violations(innocent) == []


@pytest.mark.parametrize("path", _sources(*_LIMITED), ids=_name)
def test_files_stay_readable(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= _MAX_LINES, f"{_name(path)} has {lines} lines; split it"
