"""The status pages in a browser: their content, that they follow events, and that names of clients do no harm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.check.facts import Fact
from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, HostUse, Snapshot
from agent.http import status_site
from agent.http_documents import LinkStatus, Status
from agent.status import status_document
from master.config import MasterConfig
from master.daemon import Master
from penstock.model import Capacity, ContainerSpec, Limits, Profile
from penstock.trouble import Troubles
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch
from tests.web_browser import NARROW, WIDE, Browser, browser

Start = Callable[..., Any]
Connect = Callable[..., Any]
MB = 1 << 20
#: Names from clients may not become anything but text.
EVIL = "<img src=x onerror=alert(1)>"
#: A page may not be like this where a phone shows it.
TOO_WIDE = "return document.documentElement.scrollWidth > window.innerWidth"


@pytest.fixture(scope="module")
def shown() -> Iterator[Browser]:
    with browser() as one:
        yield one


def look_at(page: Browser, name: str) -> None:
    """In all of its looks, each kept as a picture: text can be read, and nothing sticks out."""
    for width in (WIDE, NARROW):
        for dark in (False, True):
            page.width(width)
            page.dark(on=dark)
            assert page.poor_contrast() == []
            assert not page.run(TOO_WIDE)
            page.shoot(f"{name}-{'wide' if width == WIDE else 'narrow'}-{'dark' if dark else 'light'}")
    page.width(WIDE)
    page.dark(on=False)


def harmless(page: Browser, base: str) -> None:
    """Check that the console has no complaint and that no other origin got a request."""
    assert page.complaints() == []
    assert page.origins() == {base}


async def see(page: Browser, condition: str) -> None:
    """Wait in a thread: the daemon may be in this process."""
    await asyncio.to_thread(page.until, condition)


# ---------------------------------------------------------------- a host


async def test_a_host_s_page_follows_its_queues(start_agent: Start, connect: Connect, shown: Browser) -> None:
    agent = await asyncio.to_thread(start_agent, cores=1)
    base = f"http://{agent.addresses['http']}"
    client = await connect(agent)
    job = (await client.call("register_job", name=EVIL))["job"]
    monotasks = [{"id": number, "kind": "cpu", "input_bytes": 10 * MB} for number in (1, 2)]
    await client.call("submit", job=job, monotasks=monotasks)
    await client.call("progress", job=job, stages=[{"stage": "map", "tasks": 4, "done": 1}])
    await asyncio.to_thread(shown.open, base)
    queue = "document.querySelector('#queues tbody tr').innerText"
    await see(shown, f"{queue}.includes('1 of 1') && {queue}.includes('20 MiB')")
    (row,) = await asyncio.to_thread(shown.texts, "#jobs tbody tr")
    assert EVIL in row and "map 1/4" in row
    assert shown.text("h1") == "test"
    await client.call("complete", job=job, monotasks=[{"id": 1}])
    await see(shown, f"{queue}.includes('10 MiB')")  # not requested again: changes come by themselves
    await client.call("complete", job=job, monotasks=[{"id": 2}])
    await client.call("end_job", job=job)
    await see(shown, "document.querySelector('#jobs').innerText === 'No jobs.'")
    harmless(shown, base)
    assert await asyncio.to_thread(agent.stop) == 0  # open pages are disconnected: an agent that ends waits for none
    await see(shown, "document.getElementById('connection').textContent.startsWith('no answer')")


class Busy:
    """A node on which everything happens: a promise, a profile, slack that is taken back, something that ended."""

    def __init__(self) -> None:
        capacity = Capacity(cores=4, memory_bytes=1024 * MB)
        self.node = Node(NodeSettings(node="busy", instance="x", capacity=capacity, link_bytes_per_s=125_000_000))
        self.now = time.monotonic()
        self.node.handle(e.SessionOpened(1, "eve", "test"), self.now)
        limits = Limits(cpu_cores=2.0, memory_max_bytes=512 * MB)
        self.regular = self.run(name=EVIL, cpu_cores=2.0, memory_bytes=512 * MB, limits=limits)
        profile = Profile(cpu_cores=(1.5, 0.5), memory_bytes=(400 * MB, 300 * MB), slot_s=3600.0)
        self.node.handle(e.FollowRequested(1, self.regular, profile, time.time()), self.now)
        self.slack = self.run(name="on slack", opportunistic=True, memory_bytes=100 * MB)
        over = self.run(name="over")
        self.node.handle(e.ContainerExited(over, 3, None, 0.2, 5 * MB, 0, time.time()), self.now)

    def run(self, **spec: Any) -> str:
        asked = e.Requested(m.LAUNCH, 1, Launch(container=ContainerSpec(argv=("x",), cwd="/", **spec)))
        (started,) = [one for one in self.node.handle(asked, self.now) if isinstance(one, i.StartContainer)]
        self.node.handle(e.ContainerStarted(started.container, 42, {}, time.time()), self.now)
        return started.container

    def sample(self, slack_bytes: int) -> None:
        """A tick; how much memory the container on slack uses decides whether that is taken back."""
        self.now = time.monotonic()
        uses = {
            self.regular: ContainerUse(cpu_cores=1.2, memory_bytes=300 * MB, cpu_stalled=0.25),
            self.slack: ContainerUse(cpu_cores=0.5, memory_bytes=slack_bytes, disk_bytes_per_s=3e6),
        }
        host = HostUse(cpu_percent=42.0, memory_used_bytes=700 * MB, memory_total_bytes=2048 * MB, disk_busy=0.3)
        self.node.handle(e.Sampled(Snapshot(self.now, 1.0, host, uses), time.time()), self.now)

    def status(self) -> Status:
        lacks = {"memory": Fact(False, "no controller", "boot another kernel")}
        master = LinkStatus(address="", linked=False)
        return status_document(self.node, started_at=time.time(), enforcement=lacks, master=master, events=[])


@asynccontextmanager
async def served(busy: Busy) -> AsyncIterator[str]:
    site = status_site(busy.status, lambda: busy.node.slack.by_resource(busy.node.ledger()))
    await site.listen_when_free("127.0.0.1", 0, None, Troubles())
    yield f"http://{site.address}"
    await site.close()


async def test_a_page_in_the_background_does_not_watch(shown: Browser) -> None:
    busy = Busy()
    async with served(busy) as base:
        await asyncio.to_thread(shown.open, base)
        source = "performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/events')).length"
        assert shown.run(f"return {source}") == 0
        with shown.in_the_background():
            pass
        assert shown.run("return document.hidden") is False
        await see(shown, f"{source} > 0")  # the first connection is over: it was closed, and another one opened
        harmless(shown, base)


async def test_containers_with_class_limits_profile_pressure_and_preemptions_with_reasons(shown: Browser) -> None:
    busy = Busy()
    busy.sample(100 * MB)
    async with served(busy) as base:
        await asyncio.to_thread(shown.open, base)
        rows = {row.split("\n")[0]: row for row in await asyncio.to_thread(shown.texts, "#containers tbody tr")}
        assert "regular" in rows[EVIL] and "CPU 25 %" in rows[EVIL]
        assert "1.2 of 1.5 cores" in rows[EVIL] and "profile 1.5 cores" in rows[EVIL]  # its limits follow
        assert "300 of 400 MiB" in rows[EVIL] and "slot 1 of 2" in rows[EVIL]
        assert "opportunistic" in rows["on slack"] and "2.86 MiB/s" in rows["on slack"]
        assert "exit 3" in shown.text("#ended tbody tr")
        title = await asyncio.to_thread(shown.run, "return document.querySelector('#chart-cpu title').textContent")
        assert "1.7 of 4 cores used now" in title and "2 cores promised, 1.9 cores slack" in title
        assert shown.run("return document.querySelector('#chart-cpu path.used').getAttribute('d')").startswith("M")
        assert shown.text("#preemptions") == "No opportunistic container had to make way."
        busy.sample(700 * MB)  # above T_preempt: opportunistic containers have to go
        await see(shown, "document.querySelector('#preemptions tbody tr')")
        row = await asyncio.to_thread(shown.text, "#preemptions tbody tr")
        assert busy.slack in row and "preempted" in row and "over T_preempt 0.9" in row
        assert "boot another kernel" in await asyncio.to_thread(
            shown.run, "const one = document.querySelector('#notices details'); one.open = true; return one.innerText"
        )
        await asyncio.to_thread(look_at, shown, "host")
        harmless(shown, base)


async def test_keyboards_and_screen_readers_find_their_way(shown: Browser) -> None:
    busy = Busy()
    busy.sample(100 * MB)
    async with served(busy) as base:
        await asyncio.to_thread(shown.open, base)
        await asyncio.to_thread(shown.press, "TAB")
        assert shown.run("return document.activeElement.className") == "skip"
        outline = "return getComputedStyle(document.activeElement).outlineStyle"
        assert shown.run(outline) == "solid"
        found: dict[str, Any] = await asyncio.to_thread(
            shown.run,
            """const all = (selector) => [...document.querySelectorAll(selector)];
            return {
              landmarks: ["header", "main", "footer", "h1"].map((name) => all(name).length),
              named: all("section").every((one) => document.getElementById(one.getAttribute("aria-labelledby"))),
              charts: all("svg[role=img]").map((one) => one.querySelector("title").textContent.length),
              drawings: all("svg:not([role=img]):not([aria-hidden])").length,
              heads: all("table").map((one) => one.querySelectorAll("th[scope=col]").length),
              captions: all("table").every((one) => one.caption.textContent),
              rows: all("tbody tr").every((one) => one.querySelector("th[scope=row]")),
              live: all("[aria-live], [role=status], [role=alert]").length,
              language: document.documentElement.lang,
            };""",
        )
        assert found["landmarks"] == [1, 1, 1, 1] and found["named"] and found["drawings"] == 0
        assert len(found["charts"]) == 4 and all(length > 40 for length in found["charts"])
        assert all(count >= 3 for count in found["heads"]) and found["captions"] and found["rows"]
        assert found["live"] == 1  # the connection; numbers that move every other second are not read out
        assert found["language"] == "en"


# ---------------------------------------------------------------- the cluster


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Master]:
    config = MasterConfig(listen=f"{tmp_path}/master.sock", http="127.0.0.1:0", store=str(tmp_path / "master.db"))
    running = Master(config)
    await running.start()
    yield running
    await running.close()


async def test_the_cluster_s_page_shows_why_a_job_waits(
    master: Master, start_agent: Start, connect: Connect, shown: Browser
) -> None:
    agent = await asyncio.to_thread(start_agent, master=master.service.address, node="alpha")
    client = await connect(agent)
    base = f"http://{master.site.address}"
    small = (await client.call("register_job", name=EVIL, memory_bytes=64 * MB))["job"]
    await client.recorder.wait_for("job_admitted")
    task = {"task": "t-1", "usage": {"cpu": 1e6}, "memory_bytes": 16 * MB}
    await client.call("place", job=small, stage="map", tasks=[task])
    await client.recorder.wait_for("task_placed")
    await client.call("progress", job=small, stages=[{"stage": "map", "tasks": 8, "done": 6}])
    await client.call("register_job", name="large", memory_bytes=1 << 44)
    for name, request in (("nightly", "atom(<64MB,1core>,2,2,1h,2h)"), (EVIL, "atom(<64MB,1core>,1,1,2h,2h)")):
        await client.call("reserve", rdl=f"window({request},+1h,+6h)", name=name)
    await asyncio.to_thread(shown.open, base)
    await see(shown, "document.querySelectorAll('#jobs tbody tr').length === 2")
    (node,) = await asyncio.to_thread(shown.texts, "#nodes tbody tr")
    assert "alpha" in node and "connected" in node and "of 2 cores" in node
    rows = await asyncio.to_thread(shown.texts, "#jobs tbody tr")
    (waits,) = [row for row in rows if "large" in row]
    (runs,) = [row for row in rows if EVIL in row]
    assert "16 TiB" in waits and "it wants 16 TiB reserved" in waits
    assert "running" in runs and "map 6/8" in runs
    assert rows == [runs, waits], "in the order of their ranks"
    await see(shown, "document.querySelectorAll('#reservations tbody tr').length === 2")
    (evil, nightly) = await asyncio.to_thread(shown.texts, "#reservations tbody tr")
    assert evil.startswith(EVIL) and "later" in nightly and "2 cores" in nightly and "atom(<64MB" in nightly
    title = await asyncio.to_thread(shown.run, "return document.querySelector('#plan-cpu_cores title').textContent")
    assert "at most 2 of 2 cores, to " in title and "nightly" in title
    assert len(shown.run("return document.querySelectorAll('#plan-cpu_cores path.layer')")) == 2
    assert sorted(shown.texts("#plan-memory_bytes li")) == [EVIL, "nightly"]
    label = "Explain job large"
    await asyncio.to_thread(shown.run, "document.querySelector(`button[aria-label='${arguments[0]}']`).click()", label)
    await see(shown, "document.querySelector('.explanation')?.innerText.includes('econd of 2 by ')")
    explained = shown.text(".explanation")
    assert f"before it {small} ({EVIL})" in explained
    assert "it wants 16 TiB reserved" in explained
    await asyncio.to_thread(look_at, shown, "cluster")
    await client.call("end_job", job=small)
    await see(shown, "document.querySelectorAll('#jobs tbody tr:not(.below)').length === 1")
    assert shown.text(".explanation") == explained  # an open section stays open
    await client.call("drain")
    await see(shown, "document.querySelector('#nodes tbody tr').innerText.includes('drained')")
    harmless(shown, base)
    host = f"http://{agent.addresses['http']}"
    await asyncio.to_thread(shown.open, host)
    await see(shown, "document.querySelector('#notices').innerText.includes('takes no work from the cluster: drained')")
    harmless(shown, host)
