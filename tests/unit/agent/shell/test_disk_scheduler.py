"""The scheduler of a disk is chosen where the operator configured it, and restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.disk_scheduler import choose, restore


@pytest.fixture
def sys_block(tmp_path: Path) -> Path:
    for disk, text in (("vda", "[none] mq-deadline bfq\n"), ("vdb", "mq-deadline [bfq] none\n")):
        queue = tmp_path / "block" / disk / "queue"
        (queue / "iosched").mkdir(parents=True)
        (queue / "scheduler").write_text(text)
        (queue / "nr_requests").write_text("256\n")
    return tmp_path / "block"


def scheduler(sys_block: Path, disk: str) -> str:
    return (sys_block / disk / "queue" / "scheduler").read_text()


def test_it_is_chosen_and_put_back(sys_block: Path, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    assert choose("bfq", ["vda", "vdb"], before, sys_block) == {}
    assert scheduler(sys_block, "vda") == "bfq"
    assert (sys_block / "vda" / "queue" / "iosched" / "strict_guarantees").read_text() == "1"
    assert not (
        sys_block / "vdb" / "queue" / "iosched" / "strict_guarantees"
    ).exists()  # the operator's bfq, and theirs to set
    assert scheduler(sys_block, "vdb") == "mq-deadline [bfq] none\n"  # it was set already: nothing was written
    assert restore(before, sys_block) == {}
    assert scheduler(sys_block, "vda") == "none"
    assert not before.exists()


@pytest.mark.parametrize(("had", "has"), [("2\n", "128"), ("256\n", "256\n")])
def test_bfq_has_requests_to_choose_from(sys_block: Path, tmp_path: Path, had: str, has: str) -> None:
    nr_requests = sys_block / "vda" / "queue" / "nr_requests"
    nr_requests.write_text(had)
    assert choose("bfq", ["vda"], tmp_path / "before.json", sys_block) == {}
    assert nr_requests.read_text() == has


def test_chosen_twice_the_first_that_was_there_is_put_back(sys_block: Path, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    choose("bfq", ["vda"], before, sys_block)
    (sys_block / "vda" / "queue" / "scheduler").write_text("[mq-deadline] bfq\n")  # an administrator chose another
    choose("bfq", ["vda"], before, sys_block)
    choose("keep", ["vda"], before, sys_block)
    assert scheduler(sys_block, "vda") == "none"


def test_a_disk_that_is_gone_does_not_affect_the_rest(sys_block: Path, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    failed = choose("bfq", ["gone", "vda"], before, sys_block)
    assert list(failed) == ["gone"] and "disk_scheduler = keep" in failed["gone"]
    assert scheduler(sys_block, "vda") == "bfq"


def test_keeping_an_unchanged_scheduler_does_nothing(sys_block: Path, tmp_path: Path) -> None:
    assert choose("keep", ["vda"], tmp_path / "before.json", sys_block) == {}
    assert scheduler(sys_block, "vda") == "[none] mq-deadline bfq\n"
