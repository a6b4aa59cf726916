"""The host's use, from the kernel's files; a sample makes few system calls."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from agent.monitor.counters import HostCounters
from agent.monitor.host import HostMonitor, LinkFacts, _network_busy

_HEADINGS = "Inter-|   Receive\n face |bytes\n"


class Host:
    """A ``/proc`` of a test's own, a clock, and links that count how often they are asked."""

    def __init__(self, proc: Path) -> None:
        self.proc, self.now, self.asked = proc, 100.0, 0
        (proc / "net").mkdir()
        self.write("meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\nHugetlb: 0 kB\n")
        self.cpu(0, 0)
        self.disk(0, 0, 0)
        self.links(eth0=(0, 0))

    def write(self, name: str, text: str) -> None:
        with (self.proc / name).open("w", encoding="ascii") as file:  # the same file: it is open
            file.write(text)

    def cpu(self, user: int, iowait: int) -> None:
        self.write("stat", f"cpu  {user} 0 0 0 {iowait} 0 0 0 {user} 0\ncpu0 9 9 9 9 9 9 9 9 9 9\nintr 1\n")

    def disk(self, read_sectors: int, write_sectors: int, busy_ms: int) -> None:
        line = f"8 0 sda 1 2 {read_sectors} 4 5 6 {write_sectors} 8 9 {busy_ms} 11 0 0 0 0 0 0\n"
        self.write("diskstats", line + line.replace("sda", "sdb"))

    def links(self, **links: tuple[int, int]) -> None:
        lines = (f"{name:>6}: {got} 1 2 3 4 5 6 7 {sent} 9 10 11 12 13 14 15\n" for name, (got, sent) in links.items())
        self.write("net/dev", _HEADINGS + "".join(lines))

    def ask(self) -> dict[str, SimpleNamespace]:
        self.asked += 1
        return {"eth0": SimpleNamespace(isup=True, speed=8)}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def monitor(host: Host) -> HostMonitor:
    return HostMonitor(["sda"], 0, HostCounters(host.proc), host.ask, lambda: host.now)


def test_means_since_the_sample_before(host: Host, monitor: HostMonitor) -> None:
    host.cpu(30, 70)
    host.disk(4, 8, 500)
    host.links(eth0=(500_000, 1_000_000))
    host.now += 2
    use = monitor.sample()
    assert use.cpu_percent == 30.0
    assert (use.memory_used_bytes, use.memory_total_bytes) == (600 * 1024, 1000 * 1024)
    assert (use.disk_read_bytes_per_s, use.disk_write_bytes_per_s, use.disk_busy) == (1024.0, 2048.0, 0.25)
    assert (use.network_receive_bytes_per_s, use.network_send_bytes_per_s) == (250_000.0, 500_000.0)
    assert use.network_busy == 0.5


def test_nothing_happened(host: Host, monitor: HostMonitor) -> None:
    host.now += 1
    use = monitor.sample()
    assert (use.cpu_percent, use.disk_busy, use.network_busy) == (0.0, 0.0, 0.0)


def test_a_link_that_came_has_sent_nothing_yet(host: Host, monitor: HostMonitor) -> None:
    host.links(eth0=(0, 0), eth1=(10**9, 10**9))
    host.now += 1
    use = monitor.sample()
    assert (use.network_receive_bytes_per_s, use.network_send_bytes_per_s) == (0.0, 0.0)


def test_links_are_asked_for_their_rate_now_and_then(host: Host, monitor: HostMonitor) -> None:
    for _ in range(29):
        host.now += 1
        monitor.sample()
    assert host.asked == 1
    host.links(eth0=(0, 0), eth1=(0, 0))
    monitor.sample()
    assert host.asked == 2
    host.now += 30
    monitor.sample()
    assert host.asked == 3


@pytest.mark.parametrize("missing", ["stat", "meminfo", "diskstats", "net/dev"])
def test_a_host_that_lacks_a_file(host: Host, missing: str) -> None:
    (host.proc / missing).unlink()
    HostMonitor(["sda"], 0, HostCounters(host.proc), host.ask, lambda: host.now).sample()


def test_its_files_are_closed_with_it(host: Host) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    counters = HostCounters(host.proc)
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 4
    del counters
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_disk_with_many_partitions_comes_with_the_second_read(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel passes the lines of a disk and its partitions on together, so the first read may be short."""
    lines = [f"8 {number} {name} 1 2 3 4 5 6 7 8 9 10 11" for number, name in enumerate(["sda", "sdb", "sdb1"])]
    reads = {0: lines[0], len(lines[0]) + 1: "\n".join(lines[1:])}
    counters = HostCounters(host.proc)

    def pread(descriptor: int, size_bytes: int, offset_bytes: int) -> bytes:
        return (reads[offset_bytes] + "\n").encode() if offset_bytes in reads else b""

    monkeypatch.setattr("agent.monitor.counters.os.pread", pread)
    assert counters.disks(["sda", "sdb"]).keys() == {"sda", "sdb"}


def test_the_disks_are_read_up_to_the_last_one(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    counters, offsets, pread = HostCounters(host.proc), list[int](), os.pread

    def counted(descriptor: int, size_bytes: int, offset_bytes: int) -> bytes:
        offsets.append(offset_bytes)
        return pread(descriptor, size_bytes, offset_bytes)

    monkeypatch.setattr("agent.monitor.counters.os.pread", counted)
    assert counters.disks(frozenset({"sda", "sdb"})).keys() == {"sda", "sdb"}
    assert offsets == [0]
    assert counters.disks(frozenset({"sda", "sdc"})).keys() == {"sda"}
    assert offsets[1:] == [0, (host.proc / "diskstats").stat().st_size], "a disk that is gone is looked for to the end"


def test_this_host_s_figures_are_psutil_s() -> None:
    counters = HostCounters()
    disks = psutil.disk_io_counters(perdisk=True) or {}
    found = counters.disks(disks)
    links = {name: each.bytes_recv for name, each in psutil.net_io_counters(pernic=True).items()}
    assert found.keys() == disks.keys()
    assert all(found[name].read_bytes >= disk.read_bytes for name, disk in disks.items())
    assert counters.links().keys() == links.keys()
    assert counters.memory_bytes()[0] == psutil.virtual_memory().total
    assert _between(lambda: sum(counters.cpu()) / 100, lambda: sum(psutil.cpu_times()[:8]))


def _between(ours: Callable[[], float], theirs: Callable[[], float]) -> bool:
    before, found, after = theirs(), ours(), theirs()
    # Seconds are sums of ticks of 10 ms, and as floating-point numbers not exact.
    return round(before, 3) <= round(found, 3) <= round(after, 3)


# ---------------------------------------------------------------- how busy the network is


MBIT = 125_000
LINKS: dict[str, LinkFacts] = {
    "lo": SimpleNamespace(isup=True, speed=0),
    "eth0": SimpleNamespace(isup=True, speed=100),
    "virtio": SimpleNamespace(isup=True, speed=0),
    "down": SimpleNamespace(isup=False, speed=10),
}


def test_a_link_is_busy_by_its_own_rate() -> None:
    assert _network_busy({"eth0": 0.0, "down": 0.0}, {"eth0": 50.0 * MBIT, "down": 9.0 * MBIT}, LINKS, 0) == 0.5


def test_a_link_of_unknown_rate_has_the_configured_one() -> None:
    rates = {"lo": 1000.0 * MBIT, "virtio": 20.0 * MBIT}
    assert _network_busy(rates, rates, LINKS, 0) is None
    assert _network_busy(rates, rates, LINKS, 40 * MBIT) == 0.5
