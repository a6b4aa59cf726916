"""The greeting between clients and the agent: the first method of every connection, and the only one that all need."""

from __future__ import annotations

from penstock.model.resources import Capacity
from penstock.wire.connection_api import PROTOCOL, Hello, Welcome
from penstock.wire.method import Caller, declare

# fmt: off
HELLO = declare(
    "hello", Hello(protocol=PROTOCOL, client="example"),
    Welcome(
        protocol=PROTOCOL, version="0.1.0", node="alpha", user="eve",
        capacity=Capacity(cores=2.0, memory_bytes=2 << 30), network_bypass_bytes=16384, max_frame_bytes=8388608,
        enforced=["cpu", "memory"], master=True,
    ),
    Caller.EVERYBODY,
)
# fmt: on
