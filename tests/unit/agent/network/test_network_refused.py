"""A refusal of netlink reaches callers as an OSError, which they handle."""

from __future__ import annotations

import errno

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from agent.network import NetworkLimiter, limited_links


class RefusingHtb:
    """A kernel that refuses to list its links."""

    def links(self) -> list[object]:
        raise NetlinkError(errno.EPERM)

    def close(self) -> None:
        pass


def test_a_refusal_of_netlink_is_an_os_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_links, "Htb", RefusingHtb)
    made = NetworkLimiter()
    with pytest.raises(OSError, match="no CAP_NET_ADMIN; remedy: run the agent as root"):
        made.reconcile({}).result()
    made.close()
