"""The network of the copies: a namespace behind a veth pair whose rate is limited, and what receives there."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ADDRESS, PORT = "10.79.0.2", 5201
_NEAR = "10.79.0.1"
#: 10 MB/s.
RATE = "80mbit"
_SPACE, _OURS, _THEIRS = "mix-peer", "mix0", "mix1"
_MAKE = (
    f"ip netns add {_SPACE}",
    f"ip link add {_OURS} type veth peer name {_THEIRS} netns {_SPACE}",
    f"ip addr add {_NEAR}/24 dev {_OURS}",
    f"ip link set {_OURS} up",
    f"ip -n {_SPACE} addr add {ADDRESS}/24 dev {_THEIRS}",
    f"ip -n {_SPACE} link set {_THEIRS} up",
    f"tc qdisc add dev {_OURS} root tbf rate {RATE} burst 256kb latency 50ms",
)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """The link and its receiver, inside the block. Root only.

    Raises:
        subprocess.CalledProcessError: the network cannot be made.
        OSError: nothing listens at its other end.
    """
    receive = [sys.executable, str(Path(__file__).with_name("receive.py")), ADDRESS, str(PORT)]
    try:
        for command in _MAKE:
            subprocess.run(command.split(), check=True)
        with subprocess.Popen(["ip", "netns", "exec", _SPACE, *receive], stdout=subprocess.PIPE) as receiver:
            try:
                assert receiver.stdout is not None
                if not receiver.stdout.readline():
                    raise OSError(f"nothing listens at {ADDRESS}:{PORT}")
                yield
            finally:
                receiver.kill()
    finally:
        subprocess.run(["ip", "netns", "delete", _SPACE], check=False)
