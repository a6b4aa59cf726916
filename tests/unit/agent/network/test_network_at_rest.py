"""What the limiter leaves out while there is nothing to do: lists of links, and changes of threads."""

from __future__ import annotations

import contextlib
import errno
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from agent.network import NetworkLimiter, bpf, limited_links, limiter
from agent.network.htb import Htb
from agent.network.htb_parameters import HtbClass, Shape
from agent.network.htb_tree import HtbTree
from agent.network.link_changes import LinkChanges
from agent.network.links import Link


class Kernel:
    """An ``Htb``; ``lists`` counts how often it was asked for its links. It refuses while ``refuses``."""

    def __init__(self) -> None:
        self.lists, self.refuses = 0, False
        self.there: list[Link] = []
        self.with_our_root: set[int] = set()
        self.asked: list[str] = []

    def links(self) -> list[Link]:
        self.lists += 1
        if self.refuses:
            raise OSError(errno.ENOBUFS, "no room")
        return self.there

    def roots(self) -> set[int]:
        return set(self.with_our_root)

    def classes(self, index: int) -> dict[int, object]:
        self.asked.append(f"classes of {index}")
        return {}

    def uninstall(self, index: int) -> None:
        self.asked.append(f"uninstall {index}")
        self.with_our_root.discard(index)

    def close(self) -> None:
        pass


class Messages:
    """The kernel's messages about links."""

    def __init__(self) -> None:
        self.some = False

    def seen(self) -> bool:
        some, self.some = self.some, False
        return some

    def close(self) -> None:
        pass


@limiter._in_worker
def look(made: NetworkLimiter, again: bool = False) -> None:
    made._look(again=again)


@contextlib.contextmanager
def made_on(kernel: Kernel, messages: Messages, monkeypatch: pytest.MonkeyPatch) -> Iterator[NetworkLimiter]:
    monkeypatch.setattr(limited_links, "Htb", lambda: kernel)
    monkeypatch.setattr(limited_links, "LinkChanges", lambda: messages)
    monkeypatch.setattr(limited_links, "default_routes", lambda: frozenset())
    made = NetworkLimiter()
    try:
        yield made
    finally:
        made.close()


def test_links_are_looked_at_only_after_a_message_and_again_after_a_look_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, messages = Kernel(), Messages()
    with made_on(kernel, messages, monkeypatch) as made:
        for again in (False, False, True):
            look(made, again).result()
        assert kernel.lists == 1
        messages.some = kernel.refuses = True
        with pytest.raises(OSError, match="no room"):
            look(made).result()
        kernel.refuses = False
        look(made).result()
        look(made).result()
        assert kernel.lists == 3


def test_a_look_that_failed_after_the_links_were_read_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = iter([OSError(errno.ENOENT, "no routes")])

    def routes() -> frozenset[str]:
        if (error := next(fails, None)) is not None:
            raise error
        asked.append(None)
        return frozenset()

    asked = list[None]()
    with made_on(Kernel(), Messages(), monkeypatch) as made:
        monkeypatch.setattr(limited_links, "default_routes", routes)
        with pytest.raises(OSError, match="no routes"):
            look(made).result()
        look(made).result()
        look(made).result()
        assert len(asked) == 1


def test_programs_of_an_earlier_agent_are_looked_for_only_on_containers_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Path] = []
    monkeypatch.setattr(limiter, "BpfMap", Mock())
    monkeypatch.setattr(limiter.bpf, "attach", lambda cgroup, programs, slot: {})
    monkeypatch.setattr(limiter.bpf, "former_slot", looked.append)
    with made_on(Kernel(), Messages(), monkeypatch) as made:
        new, former = Path("/new"), Path("/former")
        made.attach(1, new, Shape()).result()
        assert looked == []
        made.reconcile({1: (new, Shape()), 2: (former, Shape())}).result()
        assert looked == [former]


def test_our_programs_are_removed_from_all_cgroups_that_are_no_container_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, other = tmp_path / "c-1" / "its" / "own", tmp_path / "c-2"
    for cgroup in (inside, other):
        cgroup.mkdir(parents=True)
    there = {tmp_path / "c-1", inside, other}
    monkeypatch.setattr(limiter, "BpfMap", Mock())
    monkeypatch.setattr(limiter.bpf, "attach", lambda cgroup, programs, slot: {})
    monkeypatch.setattr(limiter.bpf, "former_slot", lambda cgroup: None)
    monkeypatch.setattr(limiter.bpf, "detach", lambda cgroup: int(cgroup in there))
    with made_on(Kernel(), Messages(), monkeypatch) as made:
        repaired = made.reconcile({1: (tmp_path / "c-1", Shape())}, tmp_path).result()
    assert repaired == [f"programs of {each} were removed" for each in (inside, other)]


def test_a_link_without_our_root_is_left_alone_by_a_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    kernel.there = [Link(2, "eth0"), Link(3, "eth1")]
    with made_on(kernel, Messages(), monkeypatch) as made:
        assert made.reconcile({}).result() == []
        assert kernel.asked == []
        kernel.with_our_root = {3, 9}
        assert made.reconcile({}).result() == ["a tree on link 9, which is no longer limited, was removed"]
        assert kernel.asked == ["classes of 3", "uninstall 3", "uninstall 9"]
        assert made.reconcile({}).result() == []


def test_all_messages_are_read_at_once() -> None:
    changes = LinkChanges()
    changes.close()
    changes._socket, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    with kernel:
        assert not changes.seen()
        kernel.send(b"a link")
        kernel.send(b"another")
        assert changes.seen()
        assert not changes.seen()
    changes.close()


def test_links_are_read_anew_after_messages_were_lost() -> None:
    changes = LinkChanges()
    changes.close()
    nothing = BlockingIOError(errno.EAGAIN, "no message")
    changes._socket = Mock(recv=Mock(side_effect=[nothing, OSError(errno.ENOBUFS, "lost"), nothing, nothing]))
    assert [changes.seen() for _ in range(3)] == [False, True, False]


def test_another_error_of_the_socket_is_raised() -> None:
    changes = LinkChanges()
    changes.close()
    nothing = BlockingIOError(errno.EAGAIN, "no message")
    changes._socket = Mock(recv=Mock(side_effect=[OSError(errno.EBADF, "closed"), nothing]))
    with pytest.raises(OSError, match="closed"):
        changes.seen()


def test_a_link_of_which_no_message_came_is_found_by_one_of_the_next_ten_reconciliations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel()
    with made_on(kernel, Messages(), monkeypatch) as made:
        for _ in range(10):
            made.reconcile({}).result()
        assert kernel.lists == 1
        made.reconcile({}).result()
        assert kernel.lists == 2


def test_the_kernel_tells_of_a_link_before_its_maker_goes_on() -> None:
    """In a network namespace of a process of the test's own."""
    program = """
from pyroute2 import IPRoute
from agent.network.link_changes import LinkChanges
with IPRoute() as ip:
    changes = LinkChanges()
    print(changes.seen())
    ip.link("add", ifname="one", kind="veth", peer="two")
    print(changes.seen(), changes.seen())
"""
    apart = ["unshare", "--net"]
    if subprocess.run([*apart, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no network namespace can be created here")
    command = [*apart, sys.executable, "-c", program]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert said == ["False", "True", "False"]


def test_a_slot_of_which_the_kernel_has_nothing_is_free_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = HtbTree(cast(Htb, None), Link(2, "eth0"), 10_000_000)
    with made_on(Kernel(), Messages(), monkeypatch) as made:
        threads, detach = list[threading.Thread](), made._detach

        def noted(slot: int, cgroup: object) -> None:
            threads.append(threading.current_thread())
            detach(slot, None)

        monkeypatch.setattr(made, "_detach", noted)
        made._links.trees = [tree]
        made._containers = {1: cast(Any, SimpleNamespace()), 2: cast(Any, SimpleNamespace())}
        detached = made.detach(1, None)
        assert detached.done()
        assert made._containers.keys() == {2}
        under_way = threading.Event()
        waits = made._worker.submit(under_way.wait)
        made._latest = waits
        later = made.detach(2, None)
        assert not later.done(), "calls before it come first"
        under_way.set()
        waits.result()
        later.result()
        assert made._containers == {}
        assert [thread is threading.current_thread() for thread in threads] == [True, False]
        tree._own = {1: cast(HtbClass, None)}
        monkeypatch.setattr(tree, "settle", lambda slot, shape: None)
        made.detach(1, None).result()
        assert threads[-1] is not threading.current_thread(), "the kernel may let a class wait"
        made._links.trees = []


@dataclass
class Attaching:
    """A limiter at rest on one link, whose programs of slot 1 are loaded."""

    made: NetworkLimiter
    messages: Messages
    threads: list[threading.Thread] = field(default_factory=list)

    def at_once(self, slot: int = 1, shape: Shape = Shape()) -> bool:  # noqa: B008 - it is frozen
        """Attach in a slot, then detach; return whether the calling thread attached."""
        attached = self.made.attach(slot, Path("/new"), shape)
        assert attached.result() == {}
        self.made.detach(slot, None).result()
        return self.threads[-1] is threading.current_thread()


@pytest.fixture
def attaching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attaching]:
    table = Mock()
    table.programs.loaded = lambda slot: slot == 1
    monkeypatch.setattr(limiter, "BpfMap", lambda: table)
    kernel, messages = Kernel(), Messages()
    kernel.there = [Link(2, "eth0")]
    with made_on(kernel, messages, monkeypatch) as made:
        attaching = Attaching(made, messages)

        def attach(cgroup: Path, programs: object, slot: int) -> dict[bpf.Direction, int]:
            attaching.threads.append(threading.current_thread())
            return dict.fromkeys(bpf.Direction, slot)

        monkeypatch.setattr(limiter.bpf, "attach", attach)
        assert not attaching.at_once(), "the links were not read yet"
        yield attaching


def test_a_container_that_needs_no_class_is_attached_without_a_change_of_threads(attaching: Attaching) -> None:
    assert attaching.at_once()
    assert attaching.at_once(shape=Shape(rank=3, opportunistic=True)), "the rate of the link is not known"
    assert not attaching.at_once(slot=2), "the kernel verifies its programs"
    assert attaching.made.attach(1, Path("/new"), Shape()).done()
    assert not attaching.at_once(), "a container has the slot"


def test_a_container_that_may_need_a_class_is_attached_by_the_thread_of_the_network(
    attaching: Attaching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HtbTree, "limit", lambda self, slot, shape: {})
    assert not attaching.at_once(shape=Shape(ceil_bytes_per_s=10_000_000))
    tree = HtbTree(cast(Htb, None), Link(2, "eth0"), 10_000_000)
    attaching.made._links.trees = [tree]
    assert attaching.at_once()
    assert not attaching.at_once(shape=Shape(rank=1))
    tree._draining = {1}
    monkeypatch.setattr(tree, "drop_packets", lambda slot: None)
    assert not attaching.at_once(), "packets of its former container wait"
    attaching.made._links.trees = []


def test_after_a_message_about_a_link_the_thread_of_the_network_reads_the_links(attaching: Attaching) -> None:
    attaching.messages.some = True
    assert not attaching.at_once()
    assert attaching.at_once()


def test_a_container_is_attached_after_the_calls_before_it(attaching: Attaching) -> None:
    under_way = threading.Event()
    attaching.made._latest = attaching.made._worker.submit(under_way.wait)
    later = attaching.made.attach(1, Path("/new"), Shape())
    assert not later.done()
    under_way.set()
    assert later.result() == {}
    assert attaching.threads[-1] is not threading.current_thread()


def test_a_call_that_was_cancelled_while_it_waited_says_nothing_of_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with made_on(Kernel(), Messages(), monkeypatch) as made:
        under_way = threading.Event()
        made._worker.submit(under_way.wait)
        try:
            assert made.sweep().cancel()
            assert not made.detach(1, None).done()
        finally:
            under_way.set()
        made.sweep().result()
        assert made.detach(1, None).done(), "at rest again"
