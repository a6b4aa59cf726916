"""Our HTB tree on a link, in the kernel: a root that does not affect other traffic, and classes (pyroute2, sch_htb).

The root passes traffic of no class unlimited (``default=0``). It is recognised by its own major number. A root qdisc
that another program installed is never changed.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from agent.network.htb_classes import ClassReader, KernelClass
from agent.network.htb_parameters import HtbClass
from agent.network.links import Link

T = TypeVar("T")
#: 7a11:0, the root qdisc; a class id is this plus the class's minor number.
HANDLE = 0x7A11_0000
_ROOT = 0xFFFF_FFFF  # TC_H_ROOT
_LOOPBACK = 8  # IFF_LOOPBACK
_UP = 1  # IFF_UP


class Htb:
    """The trees on all links of this network namespace, by rtnetlink.

    pyroute2 0.9 runs an event loop inside of each call: use it in one thread only, which has no event loop.
    """

    def __init__(self) -> None:
        self._ip = IPRoute()
        self._reader = ClassReader()

    def close(self) -> None:
        """Close the sockets; the kernel keeps its settings."""
        self._ip.close()
        self._reader.close()

    def links(self) -> list[Link]:
        """Return all links of this namespace."""
        return [_link(message) for message in self._ip.get_links()]

    def roots(self) -> set[int]:
        """Return the indices of the links that have our root."""
        return {q["index"] for q in self._ip.get_qdiscs() if _is_ours(q)}

    def refuses(self, link: Link) -> str | None:
        """Return why our root cannot be put on the link, if another program's root is there."""
        found = self._root(link)
        if found is None or _is_ours(found) or not found["handle"]:  # the kernel's own default has no handle
            return None
        name = f"{found.get_attr('TCA_KIND')} {found['handle'] >> 16:x}:"
        return (
            f"{link.name} has a root qdisc of its own ({name}), which Penstock does not replace; "
            f"remedy: `tc qdisc del dev {link.name} root`"
        )

    def install(self, link: Link) -> str | None:
        """Put our root on the link. Returns why it cannot be, with the remedy; other roots are then unchanged.

        The kernel refuses ``add`` if there is a root, and ``replace`` fails on our own, so check first.
        """
        found = self._root(link)
        if found is not None and _is_ours(found):
            return None
        why = self.refuses(link)
        if why is None:
            try:
                self._ip.tc("add", "htb", index=link.index, parent=_ROOT, handle=HANDLE, default=0)
            except NetlinkError as error:
                why = reason(link.name, error)
        return why

    def uninstall(self, index: int) -> None:
        """Remove our root and all its classes; the kernel restores its default. Other roots are unchanged."""
        self._tc_ignoring_missing("del", index=index, parent=_ROOT, handle=HANDLE)

    def set_class(self, index: int, wanted: HtbClass) -> None:
        """Create the class, or change it at once, except for its parent. Idempotent.

        Raises:
            NetlinkError: ENOENT when our root is not on the link, ENODEV when the link is gone.
        """
        self._ip.tc(
            "replace-class", "htb", index=index, parent=HANDLE | wanted.parent, handle=HANDLE | wanted.minor,
            **wanted.parameters(),
        )  # fmt: skip

    def queue_by_flow(self, index: int, minor: int) -> None:
        """Let the flows of a class take turns (fq_codel) instead of sharing one queue, if the kernel supports it."""
        handle = HANDLE + 0x1_0000 * (1 + (minor >> 4 & 0xF))
        with contextlib.suppress(NetlinkError):
            self._ip.tc("replace", "fq_codel", index=index, parent=HANDLE | minor, handle=handle)

    def delete_class(self, index: int, minor: int) -> None:
        """Remove a class if it exists, with its waiting packets; packets that still carry its mark become unlimited."""
        self._tc_ignoring_missing("del-class", index=index, parent=HANDLE, handle=HANDLE | minor)

    def classes(self, index: int) -> dict[int, KernelClass]:
        """Return minor → class of ours on this link; empty without our root."""
        return self._reader.read(index, HANDLE)

    def find_class(self, index: int, minor: int) -> KernelClass | None:
        """Return one class of ours, if it exists."""
        return self._reader.find(index, HANDLE | minor)

    def refused(self) -> str | None:
        """Return why HTB is unavailable: requests a version that only the module itself can refuse."""
        loopback = next((link.index for link in self.links() if link.loopback), 1)
        try:
            self._ip.tc("add", "htb", index=loopback, parent=_ROOT, handle=HANDLE, default=0, version=0)
        except NetlinkError as error:
            # EEXIST: another root on loopback prevents the test; the first attach will tell
            return None if error.code in (errno.EINVAL, errno.EEXIST) else reason("lo", error)
        self.uninstall(loopback)
        return None

    def _root(self, link: Link) -> Any:
        found = (qdisc for qdisc in self._ip.get_qdiscs() if qdisc["index"] == link.index and qdisc["parent"] == _ROOT)
        return next(found, None)

    def _tc_ignoring_missing(self, command: str, **where: int) -> None:
        try:
            # the kernel refuses a deletion with pyroute2's options for a kind
            self._ip.tc(command, **where)
        except NetlinkError as error:
            if error.code not in (errno.ENOENT, errno.ENODEV, errno.EINVAL):
                raise


def with_htb(do: Callable[[Htb], T]) -> T:
    """Call a function in a thread of its own: pyroute2 cannot be used in one that runs an event loop."""

    def work() -> T:
        with contextlib.closing(Htb()) as htb:
            return do(htb)

    with ThreadPoolExecutor(1) as worker:
        return worker.submit(work).result()


def reason(link: str, error: NetlinkError) -> str:
    """Return the meaning of the kernel's error, with the remedy."""
    if error.code == errno.EPERM:
        return "no CAP_NET_ADMIN; remedy: run the agent as root, or give its unit AmbientCapabilities=CAP_NET_ADMIN"
    if error.code in (errno.ENOENT, errno.EOPNOTSUPP):
        return "the kernel has no HTB; remedy: `modprobe sch_htb`, or a kernel with CONFIG_NET_SCH_HTB"
    if error.code == errno.ENODEV:
        return f"{link} is gone"
    return f"{link}: {error}"


def default_routes(tables: Path = Path("/proc/thread-self/net")) -> set[str]:
    """Return the names of the links with a default route (main table of IPv4, all of IPv6)."""
    found: set[str] = set()
    for name, is_default in (("route", _default_ipv4), ("ipv6_route", _default_ipv6)):
        try:
            lines = (tables / name).read_text().splitlines()
        except FileNotFoundError:  # IPv6 switched off
            continue
        found.update(link for line in lines if (link := is_default(line.split())) is not None)
    return found - {"lo"}


def _default_ipv4(columns: list[str]) -> str | None:
    return columns[0] if columns[1] == "00000000" == columns[7] else None


def _default_ipv6(columns: list[str]) -> str | None:
    return columns[-1] if columns[0] == "0" * 32 and columns[1] == "00" else None


def _is_ours(qdisc: Any) -> bool:
    return bool(qdisc["handle"] == HANDLE and qdisc["parent"] == _ROOT and qdisc.get_attr("TCA_KIND") == "htb")


def _link(message: Any) -> Link:
    info = message.get_attr("IFLA_LINKINFO")
    elsewhere = message.get_attr("IFLA_LINK_NETNSID") is not None
    return Link(
        index=message["index"],
        name=message.get_attr("IFLA_IFNAME"),
        kind=(info.get_attr("IFLA_INFO_KIND") or "") if info is not None else "",
        up=bool(message["flags"] & _UP),
        loopback=bool(message["flags"] & _LOOPBACK),
        master=message.get_attr("IFLA_MASTER") or 0,
        lower=0 if elsewhere else message.get_attr("IFLA_LINK") or 0,
    )
