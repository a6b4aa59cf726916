"""Names that clients choose never become paths: every text of every method, with names that would like to.

The places where a name is accepted come from the wire's declaration. The agent runs with an audit hook of CPython's
(PEP 578) that records all its actions, on files above all, with an argument that contains the names' mark.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from penstock.model.profile import Profile
from penstock.wire import agent_methods, relayed_methods
from penstock.wire.agent_api import Params
from penstock.wire.errors import ErrorCode, RpcError
from tests.integration.conftest import Daemon

MARK = "penstock-escape"
NAMES = {
    "upwards": f"../../../../{MARK}",
    "absolute": f"/tmp/{MARK}",
    "nul": f"{MARK}\0x",
    "long": MARK + "x" * (4096 - len(MARK)),
    "unicode": f"{MARK}/\u202e\U0001f6b0/\ufeff..",
    "control": f"{MARK}\n\x1b[31m\r\t",
    "shell": f"$(touch {MARK}); `touch {MARK}` ~ * %2e%2e%2f",
    "dots": "..",
}
#: Run the module of ``-m agent``, and keep the names of audited events whose arguments have the mark in them.
_WATCHED = """#!{python} -I
import os, sys
kept = os.open({seen!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
def hook(event, arguments):
    text = repr(arguments)
    if {mark!r} in text:
        os.write(kept, (event + " " + text[:200] + "\\n").encode("utf-8", "replace"))
sys.addaudithook(hook)
try:
    os.listdir("/nowhere/{mark}")
except OSError:
    pass
from agent.command import main
sys.exit(main(sys.argv[4:]))
"""


def places(kind: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Return the places below a type where a text is allowed; 0 is an element, and ``*`` the key of a map."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is str:
        yield path
    elif origin is Annotated:
        yield from places(arguments[0], path)
    elif origin in {typing.Union, types.UnionType}:
        for one in arguments:
            yield from places(one, path)
    elif origin in {list, tuple}:
        yield from places(arguments[0], (*path, 0))
    elif origin is dict:
        yield (*path, "*")
        yield from places(arguments[1], (*path, "key"))
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            yield from places(field.type, (*path, field.encode_name))


def least(kind: Any, known: dict[str, Any], name: str = "") -> Any:
    """The least that a type takes; ids are those of things that are there."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if name in known and kind is not Profile:
        return known[name]
    if origin is Annotated:
        return least(arguments[0], known, name)
    if origin in {typing.Union, types.UnionType}:
        return least(arguments[0], known, name)
    if origin in {list, tuple}:
        return [least(arguments[0], known)]
    if origin is dict:
        return {}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        needed = [field for field in msgspec.structs.fields(kind) if field.required]
        return {field.encode_name: least(field.type, known, field.encode_name) for field in needed}
    return {str: "a", int: 1, float: 1.0, bool: False}.get(kind, "cpu")


def with_name(kind: type[Params], path: tuple[str | int, ...], bad: str, known: dict[str, Any]) -> Any:
    """The least parameters, with a name in one place."""
    made = least(kind, known)
    at, of = made, kind
    for step, after in pairwise(path):
        fresh: Any = [] if after == 0 else {}
        if isinstance(at, list):
            at = at[0] if at and isinstance(at[0], dict | list) else _append(at, fresh)
            continue
        inside = _field(of, str(step))
        whole = least(inside, known) if inside is not None and after not in (0, "*", "key") else fresh
        if not isinstance(at.get(step), dict | list):
            at[step] = whole if isinstance(whole, dict | list) else fresh
        at = at[step]
        of = inside
    if isinstance(at, list):
        at[:] = [bad]
    elif path[-1] == "*":
        at[bad] = "x"
    else:
        at[path[-1]] = bad
    return made


def _append(at: list[Any], fresh: Any) -> Any:
    at[:] = [fresh]
    return fresh


def _field(kind: Any, name: str) -> Any:
    """A structure's field as a type that :func:`least` knows; None: not a structure."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return None
    found = next((one.type for one in msgspec.structs.fields(kind) if one.encode_name == name), None)
    structs = [
        one for one in (found, *typing.get_args(found)) if isinstance(one, type) and issubclass(one, msgspec.Struct)
    ]
    return structs[0] if structs else None


METHODS = {name: method.params for name, method in {**agent_methods.REQUESTS, **relayed_methods.REQUESTS}.items()}
#: That which ends the job of all others comes last.
PLACES = [
    (method, path)
    for method, kind in sorted(METHODS.items(), key=lambda item: item[0] == "end_job")
    for path in dict.fromkeys(places(kind))
]


def test_the_places_are_found() -> None:
    """Those that a reader of the protocol would look for first are among them."""
    assert {
        ("register_job", ("name",)), ("register_job", ("job",)), ("register_job", ("opportunistic", 0)),
        ("launch", ("container", "name")), ("launch", ("container", "stdio")), ("launch", ("container", "cwd")),
        ("launch", ("container", "env", "*")), ("launch", ("container", "argv", 0)), ("kill", ("container",)),
        ("place", ("stage",)), ("place", ("tasks", 0, "task")), ("place", ("tasks", 0, "command", "stdio")),
        ("place", ("tasks", 0, "executor", "application")), ("submit", ("monotasks", 0, "id")), ("output", ("stream",)),
        ("output", ("container",)), ("hello", ("client",)), ("reserve", ("name",)), ("tasks_done", ("tasks", 0)),
    } <= set(PLACES)  # fmt: skip
    assert len(PLACES) > 50


@pytest.fixture
def watched(tmp_path: Path, start_agent: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch) -> tuple[Daemon, Path]:
    """Start an agent; return it and the file with its hook's records."""
    seen, program = tmp_path / "seen", tmp_path / "watched"
    program.write_text(_WATCHED.format(python=sys.executable, seen=str(seen), mark=MARK))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    settings = {"runtime_dir": tmp_path / "a/b/run", "state_dir": tmp_path / "a/b/state"}
    daemon = start_agent(imports_anew=True, **settings)
    monkeypatch.undo()
    return daemon, seen


async def test_no_name_becomes_a_path(
    watched: tuple[Daemon, Path], connect: Callable[..., Any], tmp_path: Path
) -> None:
    daemon, seen = watched
    client = await connect(daemon)
    job = (await client.call("register_job", name="x"))["job"]
    launched = await client.call("launch", container={"argv": ["sleep", "1000"]})
    known = {"job": job, "container": launched["container"], "pid": launched["pid"], "protocol": 1, "argv": ["true"]}
    before = _files(tmp_path)
    codes: dict[str, int] = {}
    for method, path in PLACES:
        for name in NAMES.values():
            params = with_name(METHODS[method], path, name, {**known, **_spec(method, known)})
            try:
                await (await connect(daemon, hello=False) if method == "hello" else client).call(method, **params)
            except RpcError as error:
                codes[error.code] = codes.get(error.code, 0) + 1
                assert error.code is not ErrorCode.INTERNAL, f"{method} {path} {name[:40]!r}: {error}"
            else:
                codes["answered"] = codes.get("answered", 0) + 1
    assert codes["answered"] > 50, f"names that are only names are accepted: {codes}"
    proof, *done = seen.read_text().splitlines()
    assert proof.startswith("os.listdir"), "the hook sees"
    assert not done, "the agent's actions with a name in its hands"
    fresh = _files(tmp_path) - before
    strange = {path for path in fresh if not _ours(path)}
    assert not strange
    assert not Path(f"/tmp/{MARK}").exists() and not list(Path.cwd().glob(f"*{MARK}*"))
    assert daemon.get("/healthz") == b"ok\n"


def _spec(method: str, known: dict[str, Any]) -> dict[str, Any]:
    """A container's id where one is meant, and its specification where that is called ``container``."""
    return {"container": {"argv": ["true"]}} if method in {"launch", "adopt"} else {}


def _files(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*")}


def _ours(path: str) -> bool:
    """The journal, and outputs by the ids that the agent makes."""
    kept = r"log-[0-9]{8}"
    return re.fullmatch(rf"a/b/state/(journal/{kept}|outputs/c-[0-9a-f]{{8}}-\d+(/std(out|err))?)", path) is not None
