"""Hooks into private names give up by themselves, and report it once."""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from distributed import utils_comm
from distributed.shuffle._core import ShuffleId, ShuffleRun
from distributed.shuffle._disk import DiskShardsBuffer

import penstock.engines.dask as package
from penstock.engines.dask import hooks
from penstock.engines.dask.pool import GatedThreadPoolExecutor
from penstock.engines.dask.work_count import WorkCount


@pytest.fixture(autouse=True)
def nothing_missed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_missed", {})
    monkeypatch.setattr(hooks, "_reported", set())


def test_everything_is_there_in_the_distributed_that_is_installed(make_gate: Callable[[int], Any]) -> None:
    hooks.need_tasks()
    pool = hooks.make_pool(make_gate(1), 1, "test", WorkCount())
    assert type(pool) is not GatedThreadPoolExecutor
    assert "ThreadPoolExecutor" in str(type(pool))  # how Dask knows that tasks can have its context
    pool.shutdown()


def test_a_missing_name_disables_the_hook_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    def install() -> None:
        hooks.look_up("distributed.worker", "Worker", "nothing_of_that_name")

    with caplog.at_level(logging.WARNING, "penstock"):
        for what in ("what it gates", "the same again"):
            assert hooks.attempt(what, install) is None
            hooks.report()
    (record,) = caplog.records
    assert "has no distributed.worker.nothing_of_that_name; not gated: what it gates" in record.getMessage()


def test_a_missing_module_is_a_missing_name() -> None:
    with pytest.raises(hooks.Missing, match=r"distributed\.nowhere"):
        hooks.look_up("distributed.nowhere", "x")


def test_a_pool_that_secedes_otherwise_is_still_a_gated_pool(
    make_gate: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hooks, "POOL_NAMES", ("_threads", "_that_was_renamed"))
    pool = hooks.make_pool(make_gate(1), 1, "test", WorkCount())
    assert type(pool) is GatedThreadPoolExecutor
    assert pool.submit(pow, 2, 3).result(30) == 8
    pool.shutdown()
    hooks.report()
    assert "_that_was_renamed" in caplog.text


async def test_a_method_is_wrapped_and_restored() -> None:
    class Owner:
        async def work(self, n: int) -> int:
            return n

    owner = Owner()

    def doubled(original: Callable[..., Any]) -> Callable[..., Any]:
        async def work(n: int) -> int:
            return 2 * int(await original(n))

        return work

    restore = hooks.replace_method(owner, "work", doubled)
    assert await owner.work(3) == 6
    restore()
    assert await owner.work(3) == 3
    with pytest.raises(hooks.Missing, match="other"):
        hooks.replace_method(owner, "other", doubled)


class Recorded:
    """A context manager that records when it is entered and left, in ``told``."""

    def __init__(self) -> None:
        self.told: list[object] = []

    @asynccontextmanager
    async def enter(self, size_bytes: int) -> Any:
        self.told.append(size_bytes)
        try:
            yield
        finally:
            self.told.append("left")


@pytest.mark.parametrize(("owner", "method"), [(ShuffleRun, "_send"), (DiskShardsBuffer, "_process")])
async def test_a_method_of_a_shuffle_is_wrapped_and_restored(
    owner: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []

    async def before(self: object, to: str, shards: Any) -> str:
        done.append((to, shards))
        return "answer"

    measured: list[object] = []

    def safe_sizeof(shard: object) -> int:
        measured.append(shard)
        return 1100

    monkeypatch.setattr(owner, method, before)
    monkeypatch.setattr("distributed.sizeof.safe_sizeof", safe_sizeof)
    recorded, too = Recorded(), Recorded()
    restore = hooks.wrap_p2p(owner.__module__, owner.__name__, method, recorded.enter)
    restore_too = hooks.wrap_p2p(owner.__module__, owner.__name__, method, too.enter)  # another worker: held once
    assert await getattr(owner, method)(None, "there", b"x" * 123) == "answer"
    assert await getattr(owner, method)(None, "there", [b"x" * 1000, b"y" * 1000]) == "answer"
    assert await getattr(owner, method)(None, "there", [(0, b"x" * 1000)]) == "answer"
    assert (recorded.told, too.told) == ([123, "left", 2000, "left", 1100, "left"], [])
    assert measured == [(0, b"x" * 1000)], "thousands of shards of bytes are usual, and their lengths are known"
    assert done == [("there", b"x" * 123), ("there", [b"x" * 1000, b"y" * 1000]), ("there", [(0, b"x" * 1000)])]
    restore()
    assert getattr(owner, method) is not before
    restore_too()
    assert getattr(owner, method) is before


async def test_a_send_of_shards_holds_nothing_in_dasks_pauses_between_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded()
    run = ShuffleRun.__new__(ShuffleRun)
    run.id, run.run_id, run.closed = ShuffleId("one"), 1, False
    run.RETRY_COUNT, run.RETRY_DELAY_MIN, run.RETRY_DELAY_MAX = 2, 1.0, 30.0
    attempts = iter((ConnectionResetError("lost"), ConnectionResetError("lost again"), None))

    class Peer:
        async def shuffle_receive(self, **_: Any) -> dict[str, str]:
            recorded.told.append("attempt")
            if (error := next(attempts)) is not None:
                raise error
            return {"status": "OK"}

    async def pause(_: float) -> None:
        recorded.told.append("pause")

    run.rpc = lambda address: Peer()  # type: ignore[assignment,return-value]
    restore = hooks.wrap_p2p(ShuffleRun.__module__, "ShuffleRun", "_send", recorded.enter)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(utils_comm.asyncio, "sleep", pause)
            assert await run.send("there", [(0, b"x")]) == {"status": "OK"}
    finally:
        restore()
    steps = [each for each in recorded.told if not isinstance(each, int)]
    assert steps == [*("attempt", "left", "pause") * 2, "attempt", "left"]


def test_coroutines_are_distinguished_from_functions() -> None:
    async def coroutine() -> None:
        pass

    class New:
        is_coro = True

    assert hooks.is_coroutine(New())
    assert hooks.is_coroutine((coroutine, (), {}))
    assert not hooks.is_coroutine((len, (), {}))
    assert not hooks.is_coroutine(None)


def _private(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value
            if not (isinstance(owner, ast.Name) and owner.id in {"self", "cls"}):
                yield f"{ast.unparse(node)}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("dask", "distributed")):
            parts = [*(node.module or "").split("."), *(each.name for each in node.names)]
            yield from (f"from {node.module} import {part}" for part in parts if part.startswith("_"))


def test_no_other_module_uses_private_names() -> None:
    directory = Path(str(package.__file__)).parent
    found = {
        path.name: names
        for path in directory.glob("*.py")
        if path.name != "hooks.py" and (names := list(_private(path.read_text())))
    }
    assert not found
