"""A test bed for what leaves a container: two network namespaces joined by a veth pair, cgroups, senders and receivers.

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
from collections.abc import Iterator
from pathlib import Path

from pyroute2 import IPRoute

from agent.network.probe import cgroup2_mount

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

#: Joins a cgroup, opens a socket, says so, and sends until it is killed.
_SENDER = """
import socket, sys
procs, protocol, address, port, size, priority = sys.argv[1:]
with open(procs, "w") as file:
    file.write("0")
kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
family = socket.AF_INET6 if ":" in address else socket.AF_INET
with socket.socket(family, kind) as link:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, int(priority))
    link.connect((address, int(port)))
    data = bytes(int(size))
    print("ready", flush=True)
    while True:
        link.send(data)
"""


class Flow:
    """One sender in a cgroup, and the socket in the other namespace where its bytes arrive."""

    def __init__(self, protocol: str, process: subprocess.Popen[str], arriving: socket.socket) -> None:
        self.process = process
        self._arriving = arriving
        self._wire_per_byte = WIRE_PER_BYTE[protocol]

    def share_of(self, rate_bytes_per_s: int, seconds: int = 1, windows: int = 6) -> float:
        """What comes over the wire, as a ratio to a rate.

        A machine that is busy with other things starves the sender or this receiver, which lowers the figure and never
        raises it: so the best of some windows counts. The rest is not measured once one comes up to the rate.
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
        self._receive(wire_bytes // 5)
        self._drain()  # what waited here came earlier
        began = time.monotonic()
        received = self._receive(wire_bytes)
        return received / (time.monotonic() - began)

    def _drain(self) -> None:
        self._arriving.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(5000):  # an unlimited sender may be faster than this
                self._arriving.recv(1 << 18)
        self._arriving.settimeout(TIMEOUT_S)

    def _receive(self, wire_bytes: int) -> float:
        received = 0.0
        while received < wire_bytes:
            received += len(self._arriving.recv(1 << 18)) * self._wire_per_byte
        return received

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._arriving.close()


class Bed:
    """While it is open, the calling thread (and what it starts) is in the near namespace, whose link is ``up0``."""

    def __init__(self) -> None:
        mount = cgroup2_mount()
        assert mount is not None
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

    def cgroup(self, name: str) -> Path:
        """A cgroup of the test's own; ``parent/child`` makes both."""
        path = self._cgroups[0]
        for part in name.split("/"):
            path /= part
            if path not in self._cgroups:
                path.mkdir()
                self._cgroups.append(path)
        return path

    def send(self, cgroup: Path, protocol: str = "udp", priority: int = 0) -> Flow:
        """A process in the cgroup that sends as fast as it may; its socket is open when this returns."""
        with self._inside(self._far):
            kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
            family, far = (socket.AF_INET6, FAR6) if protocol == "udp6" else (socket.AF_INET, FAR)
            receiver = socket.socket(family, kind)
            receiver.settimeout(TIMEOUT_S)
            receiver.bind((far, 0))
        size = UDP_PAYLOAD_BYTES
        if protocol == "tcp":
            receiver.listen()
            size = 1 << 16
        else:  # what comes while this process does not run shall wait, not be dropped
            receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 4 << 20)
        port = receiver.getsockname()[1]
        arguments = [str(cgroup / "cgroup.procs"), protocol, far, str(port), str(size), str(priority)]
        process = subprocess.Popen([sys.executable, "-I", "-c", _SENDER, *arguments], stdout=subprocess.PIPE, text=True)
        if protocol == "tcp":
            listener = receiver
            receiver, _ = listener.accept()
            receiver.settimeout(TIMEOUT_S)
            listener.close()
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], TIMEOUT_S)[0]
        assert process.stdout.readline() == "ready\n"
        flow = Flow(protocol, process, receiver)
        self._flows.append(flow)
        return flow

    def qdiscs(self, link: str = UPLINK) -> list[tuple[str, int]]:
        """Kind and handle of what somebody put on a link: what the kernel puts there by itself has no handle."""
        with IPRoute() as ip:
            (index,) = ip.link_lookup(ifname=link)
            return [
                (qdisc.get_attr("TCA_KIND"), qdisc["handle"])
                for qdisc in ip.get_qdiscs()
                if qdisc["index"] == index and qdisc["handle"]
            ]

    def classes(self, link: str = UPLINK) -> set[int]:
        """Handles of the classes on a link."""
        with IPRoute() as ip:
            (index,) = ip.link_lookup(ifname=link)
            return {message["handle"] for message in ip.get_classes(index=index)}

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
        if ":" in address:  # usable at once, without asking around whether somebody has it
            ip.addr("add", index=index, address=address, prefixlen=64, flags=_IFA_F_NODAD)
        else:
            ip.addr("add", index=index, address=address, prefixlen=24)
    ip.link("set", index=index, state="up")


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
