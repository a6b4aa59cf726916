"""What the tests rely on in their machines: a disk and a network that do not stand still (docs/testing.md)."""

from __future__ import annotations

import subprocess

from tests.vm.user_mode import Network, UserModeMachine

_WRITERS = 4
_TRAFFIC_S, _ANSWER_S = 40, 60.0


def test_the_disk_goes_on_beside_network_traffic() -> None:
    """Under such a load three of three machines without the kernel's mend wrote nothing more after 20 s."""
    write = "dd if=/dev/zero of=/root/$n bs=1M count=150 conv=fsync status=none"
    writers = f"for n in $(seq {_WRITERS}); do (while :; do {write}; done) & done; wait"
    with Network() as network, UserModeMachine(network, 1, memory_mib=2048, processors=2) as machine:
        writing = subprocess.Popen(machine.ssh_command(writers), stdin=subprocess.DEVNULL)
        try:
            traffic = machine.ssh_command(f"timeout {_TRAFFIC_S} cat /dev/zero")
            subprocess.run(traffic, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
            machine.ssh("dd if=/dev/zero of=/root/last bs=1M count=1 conv=fsync", timeout_s=_ANSWER_S)
        finally:
            writing.kill()
            writing.wait()
