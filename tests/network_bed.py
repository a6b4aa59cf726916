"""A test bed for traffic that leaves and enters a container: two namespaces joined by a veth pair, cgroups, senders,
receivers.

All of it vanishes with the process, but for the cgroups, which ``close`` removes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from agent.network import bpf
from agent.network.htb import HANDLE
from agent.network.probe import cgroup2_mount, probe

UPLINK = "up0"
NEAR, FAR = "10.77.0.1", "10.77.0.2"
NEAR6, FAR6 = "fd77::1", "fd77::2"
UDP_PAYLOAD_BYTES = 1400
#: Bytes on the wire per byte that arrives: Ethernet, IPv4 and UDP headers, or TCP's with timestamps at an MTU of 1500.
WIRE_PER_BYTE = {
    "udp": (UDP_PAYLOAD_BYTES + 42) / UDP_PAYLOAD_BYTES,
    "udp6": (UDP_PAYLOAD_BYTES + 62) / UDP_PAYLOAD_BYTES,
    "tcp": 1514 / 1448,
}
TIMEOUT_S = 30

_SO_RCVBUFFORCE = 33
_IFA_F_NODAD = 2
_CLONE_NEWNET = 0x4000_0000
_libc = ctypes.CDLL(None, use_errno=True)

#: Join a cgroup, open a socket, print a line, and send until killed, at most at a rate where one is given.
_SENDER = """
import socket, sys, time
procs, protocol, address, port, size, priority, most_bytes_per_s = sys.argv[1:]
with open(procs, "w") as file:
    file.write("0")
kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
family = socket.AF_INET6 if ":" in address else socket.AF_INET
with socket.socket(family, kind) as link:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, int(priority))
    link.connect((address, int(port)))
    data = bytes(int(size))
    print("ready", flush=True)
    began, sent = time.monotonic(), 0
    while True:
        sent += link.send(data)
        while int(most_bytes_per_s) and sent > int(most_bytes_per_s) * (time.monotonic() - began):
            time.sleep(0.002)
"""
#: The rate of all senders of datagrams that are dropped where they arrive: nothing else keeps them from taking the
#: processors.
_FLOOD_BYTES_PER_S = 40_000_000
#: An unlimited sender may be faster than what reads its data: that is given up after so long.
_DRAIN_S = 5.0


class Flow:
    """Senders of one container (or to it), and the sockets in this process where their bytes arrive."""

    def __init__(self, protocol: str, processes: list[subprocess.Popen[str]], arriving: list[socket.socket]) -> None:
        self.processes = processes
        self._arriving = arriving
        self._wire_per_byte = WIRE_PER_BYTE[protocol]
        for each in arriving:
            each.setblocking(False)

    def share_of(self, rate_bytes_per_s: int, seconds: int = 1, windows: int = 6) -> float:
        """Return the traffic on the wire, as a ratio to a rate.

        A busy machine starves the sender or this receiver, which lowers the figure and never raises it: so the best of
        some windows counts. The rest is not measured once one comes up to the rate.
        """
        best = 0.0
        for _ in range(windows):
            best = max(best, self.wire_bytes_per_s(rate_bytes_per_s * seconds) / rate_bytes_per_s)
            if best > 0.98:
                break
        return best

    def wire_bytes_per_s(self, wire_bytes: int) -> float:
        """The rate at which the next so many bytes come over the wire, after a fifth as many as warm-up."""
        self._drain()
        self._receive(wire_bytes=wire_bytes // 5)
        began = self._drain()  # data that waited here came earlier
        received = self._receive(wire_bytes=wire_bytes)
        return received / (time.monotonic() - began)

    def during(self, seconds: float) -> float:
        """Bytes per second that come over the wire from now on, and for so long."""
        began = self._drain()
        received = self._receive(until=began + seconds)
        return received / (time.monotonic() - began)

    def lag_s(
        self, change: Callable[[int], Future[dict[str, str]]], before: int, after: int, seconds: float = 1.0
    ) -> float:
        """Return how late a change of rate (bytes per second) is in effect, counted from the call of ``change(after)``.

        The delay is computed as if traffic had come at the one rate until then, and at the other one from then on, in
        any portions. Below 0: data that had been held back came at once. The best of some tries, because a sender that
        is kept from its processor makes it later.
        """
        best = float("inf")
        for _ in range(6):
            change(before).result()
            self.during(seconds / 3)
            self._drain()
            began = time.monotonic()
            change(after).result()
            received = self._receive(until=began + seconds)
            best = min(best, (received - after * (time.monotonic() - began)) / (before - after), key=abs)
            if abs(best) < 0.05:
                break
        return best

    def _drain(self) -> float:
        """Read what has arrived. Return a time before which nothing came that was not read: taken after the last read,
        it would leave out a pause of this process while data arrives.
        """
        began = at = time.monotonic()
        while sum(_read(each) for each in self._arriving) and at < began + _DRAIN_S:
            at = time.monotonic()
        return at

    def _receive(self, wire_bytes: float = float("inf"), until: float | None = None) -> float:
        received = 0.0
        last = time.monotonic()
        while received < wire_bytes and (until is None or time.monotonic() < until):
            wait_s = TIMEOUT_S if until is None else max(0.0, until - time.monotonic())
            for each in select.select(self._arriving, [], [], wait_s)[0]:
                received += _read(each) * self._wire_per_byte
                last = time.monotonic()
            assert until is not None or time.monotonic() < last + TIMEOUT_S, "nothing arrives"
        return received

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(TIMEOUT_S)
            if process.stdout is not None:
                process.stdout.close()
        for each in self._arriving:
            each.close()


def beds() -> Iterator[Bed]:
    """The value of a fixture: a bed, or a reason why this host cannot have one."""
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces, BPF programs, qdiscs")
    if refusal := probe():
        pytest.skip(f"elsewhere: {refusal}")
    made = Bed()
    try:
        yield made
    finally:
        made.close()


def together(seconds: float, *flows: Flow) -> list[float]:
    """Bytes per second of each flow on the wire, measured at the same time."""
    with ThreadPoolExecutor(len(flows)) as threads:
        return list(threads.map(lambda flow: flow.during(seconds), flows))


def _read(arriving: socket.socket) -> int:
    try:
        return len(arriving.recv(1 << 18))
    except BlockingIOError:
        return 0


class Bed:
    """While it is open, the calling thread (and its child processes) is in the near namespace, whose link is
    ``up0``.
    """

    def __init__(self) -> None:
        mount = cgroup2_mount()
        assert mount is not None
        self._mount = mount
        self._cgroups = [mount / f"penstock-test-{os.getpid()}-{secrets.token_hex(3)}"]
        self._cgroups[0].mkdir()
        self._flows: list[Flow] = []
        self._home = _here()
        self._near, self._far = _namespace(), _namespace()
        with self._inside(self._far), IPRoute() as ip:
            ip.link("add", ifname="down0", kind="veth", peer={"ifname": UPLINK, "net_ns_fd": self._near})
            _configure(ip, "down0", FAR, FAR6)
        _enter(self._near)
        with IPRoute() as ip:
            _configure(ip, UPLINK, NEAR, NEAR6)
            _configure(ip, "lo")
            ip.route("add", dst="0.0.0.0/0", gateway=FAR)

    def close(self) -> None:
        """Everything ends; the thread is back where it was."""
        for flow in self._flows:
            flow.stop()
        _enter(self._home)
        for descriptor in (self._home, self._near, self._far):
            os.close(descriptor)
        for cgroup in reversed(self._cgroups):
            if cgroup.exists():
                cgroup.rmdir()

    def lead_nowhere(self) -> None:
        """From now on no route leads out of the near namespace."""
        with IPRoute() as ip:
            ip.route("del", dst="0.0.0.0/0", gateway=FAR)

    def cgroup(self, name: str) -> Path:
        """A cgroup of the test's own; ``parent/child`` makes both."""
        path = self._cgroups[0]
        for part in name.split("/"):
            path /= part
            if path not in self._cgroups:
                path.mkdir()
                self._cgroups.append(path)
        return path

    def send(self, cgroup: Path, protocol: str = "udp", priority: int = 0, flows: int = 1) -> Flow:
        """Processes in the cgroup that send as fast as they may; their sockets are open when this returns."""
        with self._inside(self._far):
            listeners = [_listener(protocol, FAR, FAR6) for _ in range(flows)]
        return self._flow(cgroup / "cgroup.procs", protocol, priority, listeners)

    def receive(self, cgroup: Path, protocol: str = "udp", flows: int = 1) -> Flow:
        """As many senders beyond the link, to sockets that belong to the cgroup."""
        with self.member(cgroup):
            listeners = [_listener(protocol, NEAR, NEAR6) for _ in range(flows)]
        with self._inside(self._far):
            each = 0 if protocol == "tcp" else _FLOOD_BYTES_PER_S // flows
            return self._flow(Path(os.devnull), protocol, 0, listeners, each)

    def exchange(self, sender: Path, receiver: Path, size: int, timeout_s: float = TIMEOUT_S) -> None:
        """One UDP packet from a socket of one cgroup by way of the other namespace to a socket of another."""
        with self.member(receiver):
            goal = _listener("udp", NEAR, NEAR6)
        with self._inside(self._far):
            relay = _listener("udp", FAR, FAR6)
        with self.member(sender):
            source = _listener("udp", NEAR, NEAR6)
        with goal, relay, source:
            source.sendto(bytes(size), relay.getsockname())
            assert select.select([relay], [], [], timeout_s)[0]
            relay.sendto(relay.recv(1 << 16), goal.getsockname())
            assert select.select([goal], [], [], TIMEOUT_S)[0]
            assert len(goal.recv(1 << 16)) == size

    @contextlib.contextmanager
    def member(self, cgroup: Path) -> Iterator[None]:
        """This process is in the cgroup meanwhile: the sockets that it makes belong to that one for good."""
        (line,) = (each for each in Path("/proc/self/cgroup").read_text().splitlines() if each.startswith("0::/"))
        home = self._mount / line.removeprefix("0::/")
        (cgroup / "cgroup.procs").write_text("0")
        try:
            yield
        finally:
            (home / "cgroup.procs").write_text("0")

    def _flow(
        self, procs: Path, protocol: str, priority: int, listeners: list[socket.socket], rate_bytes_per_s: int = 0
    ) -> Flow:
        processes: list[subprocess.Popen[str]] = []
        arriving: list[socket.socket] = []
        flow = Flow(protocol, processes, arriving)
        self._flows.append(flow)
        size = 1 << 16 if protocol == "tcp" else UDP_PAYLOAD_BYTES
        for listener in listeners:
            address, port, *_ = listener.getsockname()
            arguments = [str(procs), protocol, address, str(port), str(size), str(priority), str(rate_bytes_per_s)]
            command = [sys.executable, "-I", "-c", _SENDER, *arguments]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            if protocol == "tcp":
                arriving.append(listener.accept()[0])
                arriving[-1].setblocking(False)
                listener.close()
            else:
                arriving.append(listener)
        for process in processes:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], TIMEOUT_S)[0]
            assert process.stdout.readline() == "ready\n"
        return flow

    def qdiscs(self, link: str = UPLINK) -> list[tuple[str, int]]:
        """Return kind and handle of each qdisc that a program put on a link: those that the kernel puts there by itself
        have no handle.
        """
        with IPRoute() as ip:
            (index,) = ip.link_lookup(ifname=link)
            return [
                (qdisc.get_attr("TCA_KIND"), qdisc["handle"])
                for qdisc in ip.get_qdiscs()
                if qdisc["index"] == index and qdisc["handle"]
            ]

    def classes(self, link: str = UPLINK) -> set[int]:
        """Handles of the classes of ours on a link."""
        return set(self.parents(link))

    def parents(self, link: str = UPLINK) -> dict[int, int]:
        """Handle of each class of ours on a link → that of the one above."""
        with IPRoute() as ip:
            (index,) = ip.link_lookup(ifname=link)
            found = {message["handle"]: message["parent"] for message in ip.get_classes(index=index)}
        return {handle: parent for handle, parent in found.items() if handle & 0xFFFF_0000 == HANDLE}

    def class_bytes(self, minor: int) -> int:
        """Return the bytes that went through a class of ours on the link, as HTB counts them."""
        with IPRoute() as ip:
            (index,) = ip.link_lookup(ifname=UPLINK)
            (found,) = (each for each in ip.get_classes(index=index) if each["handle"] == HANDLE | minor)
            return int(found.get_attr("TCA_STATS")["bytes"])

    def take_programs_off(self, cgroup: Path) -> None:
        """Remove the BPF programs, as a meddling administrator might."""
        bpf.detach(cgroup)

    def programs(self, cgroup: Path) -> int:
        """How many BPF programs are on a cgroup's packets, both ways together."""
        return sum(len(ids) for ids in bpf.attached(cgroup).values())

    @contextlib.contextmanager
    def _inside(self, namespace: int) -> Iterator[None]:
        before = _here()
        _enter(namespace)
        try:
            yield
        finally:
            _enter(before)
            os.close(before)


def _configure(ip: IPRoute, link: str, *addresses: str) -> None:
    (index,) = ip.link_lookup(ifname=link)
    for address in addresses:
        if ":" in address:  # usable at once, without a check for duplicates on the link
            ip.addr("add", index=index, address=address, prefixlen=64, flags=_IFA_F_NODAD)
        else:
            ip.addr("add", index=index, address=address, prefixlen=24)
    ip.link("set", index=index, state="up")


def _listener(protocol: str, address: str, address6: str) -> socket.socket:
    """A socket in this thread's namespace that is ready to receive."""
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    family, where = (socket.AF_INET6, address6) if protocol == "udp6" else (socket.AF_INET, address)
    listener = socket.socket(family, kind)
    listener.settimeout(TIMEOUT_S)
    listener.bind((where, 0))
    if protocol == "tcp":
        listener.listen()
    else:  # data that comes while this process does not run shall wait, not be dropped
        listener.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 4 << 20)
        listener.setblocking(False)
    return listener


def _here() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _enter(namespace: int) -> None:
    _check(_libc.setns(namespace, _CLONE_NEWNET))


def _namespace() -> int:
    """A descriptor of a new network namespace; the thread stays where it is."""
    before = _here()
    _check(_libc.unshare(_CLONE_NEWNET))
    made = _here()
    _enter(before)
    os.close(before)
    return made


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
