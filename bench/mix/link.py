"""The network of the copies: a namespace behind a veth pair whose rate is limited, and the receiver there."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.vm.host import dying_with_us

#: In the network that is kept for such measurements (RFC 2544).
ADDRESS, PORT = "198.18.79.2", 5201
_NEAR = "198.18.79.1"
#: 10 MB/s.
RATE = "80mbit"
#: The name of a link has at most 15 characters.
SPACE, OURS, _THEIRS = "penstockmix-peer", "psmix0", "psmix1"
_MAKE = (
    f"ip netns add {SPACE}",
    f"ip link add {OURS} type veth peer name {_THEIRS} netns {SPACE}",
    f"ip addr add {_NEAR}/24 dev {OURS}",
    f"ip link set {OURS} up",
    f"ip -n {SPACE} addr add {ADDRESS}/24 dev {_THEIRS}",
    f"ip -n {SPACE} link set {_THEIRS} up",
    f"tc qdisc add dev {OURS} root tbf rate {RATE} burst 256kb latency 50ms",
)


def remove() -> None:
    """Remove the parts that :func:`limited` has made, as far as they exist."""
    for path, what in ((Path("/sys/class/net", OURS), "link"), (Path("/run/netns", SPACE), "netns")):
        if path.exists():
            subprocess.run(["ip", what, "delete", path.name], check=False)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """The link and its receiver, inside the block. Root only.

    Raises:
        subprocess.CalledProcessError: the network cannot be made.
        OSError: nothing listens at its other end.
    """
    receive = [sys.executable, str(Path(__file__).with_name("receive.py")), ADDRESS, str(PORT)]
    receive = dying_with_us(["ip", "netns", "exec", SPACE, *receive])
    try:
        for command in _MAKE:
            subprocess.run(command.split(), check=True)
        # In a session of its own: a Ctrl-C is ours to handle.
        with subprocess.Popen(receive, stdout=subprocess.PIPE, start_new_session=True) as receiver:
            try:
                assert receiver.stdout is not None
                if not receiver.stdout.readline():
                    raise OSError(f"nothing listens at {ADDRESS}:{PORT}")
                yield
            finally:
                receiver.kill()
    finally:
        remove()
