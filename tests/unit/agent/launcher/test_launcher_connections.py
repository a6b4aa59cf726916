"""Which processes the launcher serves: those of root and of its own user."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any
from unittest.mock import Mock

import pytest

from agent.launcher.connections import Connections

LARGE = 3_000_000_000  # user ids are unsigned


class Peer(socket.socket):
    """A connected socket whose peer has the user id ``uid``."""

    uid = 0

    def getsockopt(self, *what: Any) -> Any:
        """Return the credentials as the kernel packs them."""
        return struct.pack("iII", 1, self.uid, self.uid)


@pytest.mark.parametrize(("uid", "served"), [(0, True), (1000, False), (LARGE, True), (LARGE + 1, False)])
def test_only_processes_of_root_and_of_the_launcher_s_user_are_served(
    uid: int, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: LARGE)
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    selector, opened = Mock(), Mock()
    with near, far:
        peer = Peer(fileno=near.detach())
        peer.uid = uid
        connections = Connections(Mock(accept=lambda: (peer, None)), selector, opened, Mock())
        [(_, accept)] = [call.args for call in selector.watch.call_args_list]
        accept(0)
        assert connections.pids() == ({1} if served else set())
        assert opened.called == served
        assert (peer.fileno() == -1) != served, "a stranger's connection is closed"
        peer.close()
