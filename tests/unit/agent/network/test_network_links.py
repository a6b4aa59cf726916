"""The links that lead out of a machine, on the kinds of machines there are; and the kernel's tables that show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.network.htb import default_routes
from agent.network.links import Link, leading_out, link_rate
from agent.network.probe import cgroup2_mount

LOOPBACK = Link(1, "lo", loopback=True)
ETH0 = Link(2, "eth0")
ETH1 = Link(3, "eth1")


BOND, BRIDGE = Link(4, "bond0", "bond"), Link(4, "br0", "bridge")
VLAN, VETHS = Link(4, "eth0.10", "vlan", lower=2), [LOOPBACK, Link(2, "eth0", "veth"), Link(3, "net1", "veth")]
DOCKER = [Link(4, "docker0", "bridge"), Link(5, "veth1", "veth", master=4)]
ROUTED_POD, DUMMY = Link(6, "cali1", "veth"), Link(7, "dummy0", "dummy")
#: All links of a host; the link of the default route; the links that lead out.
MACHINES: dict[str, tuple[list[Link], str, list[str]]] = {
    "hardware that is up, whatever the routes": (
        [LOOPBACK, ETH0, ETH1, Link(4, "eth2", up=False)], "eth0", ["eth0", "eth1"],
    ),
    "a bond instead of its ports": (
        [LOOPBACK, Link(2, "eth0", master=4), Link(3, "eth1", master=4), BOND], "", ["bond0"],
    ),
    "a bridge instead of its ports if one of them leads out": (
        [Link(2, "eth0", master=4), BRIDGE, Link(5, "tap0", "tun", master=4)], "", ["br0"],
    ),
    "a bridge over a bond once": (
        [Link(2, "eth0", master=4), Link(4, "bond0", "bond", master=5), Link(5, "br0", "bridge")], "br0", ["br0"],
    ),
    "neither Docker's bridge nor veths": ([LOOPBACK, ETH0, *DOCKER, ROUTED_POD, DUMMY], "eth0", ["eth0"]),
    "the link beneath a VLAN": ([ETH0, VLAN], "eth0.10", ["eth0"]),
    "the link beneath a VLAN in a bridge": (
        [ETH0, Link(4, "eth0.10", "vlan", lower=2, master=5), Link(5, "br10", "bridge")], "", ["eth0"],
    ),
    "a macvlan of another namespace's link": ([LOOPBACK, Link(2, "eth0", "macvlan")], "eth0", ["eth0"]),
    "a veth by which the default route leaves": (VETHS, "eth0", ["eth0"]),
    "no veth without a route": (VETHS, "", []),
    "tunnels that lose the mark": (
        [ETH0, Link(4, "wg0", "wireguard"), Link(5, "vxlan0", "vxlan", lower=2)], "", ["eth0", "wg0"],
    ),
    "a port of a VRF": ([Link(2, "eth0", master=4), Link(4, "red", "vrf")], "red", ["eth0"]),
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_the_links_that_lead_out_of_a_machine(machine: str) -> None:
    links, default, out = MACHINES[machine]
    assert [link.name for link in leading_out(links, {default} if default else set())] == out


def test_default_routes_are_read_from_the_kernels_tables(tmp_path: Path) -> None:
    (tmp_path / "route").write_text(
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    assert default_routes(tmp_path) == {"eth0"}

    zero, one = "0" * 32, "fe80" + "0" * 28
    (tmp_path / "ipv6_route").write_text(
        f"{zero} 00 {zero} 00 {one} 00000400 00000001 00000000 00000003 wlan0\n"
        f"{one} 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001 eth1\n"
        f"{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200 lo\n"
    )
    assert default_routes(tmp_path) == {"eth0", "wlan0"}


def test_the_first_cgroup2_mount_is_found_wherever_it_is(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("proc /proc proc rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n")
    assert cgroup2_mount(mounts) is None
    mounts.write_text("cgroup2 /mnt/a\\040b cgroup2 rw 0 0\ncgroup2 /other cgroup2 rw 0 0\n")
    assert cgroup2_mount(mounts) == Path("/mnt/a b")


def sysfs(root: Path, name: str, index: int, speed: str) -> None:
    (root / name).mkdir()
    (root / name / "ifindex").write_text(f"{index}\n")
    (root / name / "speed").write_text(f"{speed}\n")


def test_the_rate_of_a_link_is_that_of_the_hardware(tmp_path: Path) -> None:
    sysfs(tmp_path, "eth0", 2, "1000")
    sysfs(tmp_path, "eth1", 3, "-1")  # virtio
    sysfs(tmp_path, "veth0", 4, "10000")
    sysfs(tmp_path, "bond0", 5, "20000")
    sysfs(tmp_path, "eth9", 77, "1000")  # another one: that of another network namespace
    rates = [
        link_rate(link, [], tmp_path)
        for link in (
            ETH0, ETH1, Link(4, "veth0", "veth"), Link(5, "bond0", "bond"), Link(9, "eth9"), Link(10, "gone0"),
        )
    ]  # fmt: skip
    assert rates == [125_000_000, 0, 0, 2_500_000_000, 0, 0]


def test_a_bridge_is_as_fast_as_its_way_out(tmp_path: Path) -> None:
    sysfs(tmp_path, "eth0", 2, "1000")
    sysfs(tmp_path, "tap0", 5, "10")
    bridge = Link(4, "br0", "bridge")
    ports = [Link(2, "eth0", master=4), Link(5, "tap0", "tun", master=4)]
    assert link_rate(bridge, [bridge, *ports], tmp_path) == 125_000_000
    assert link_rate(bridge, [bridge, ports[1]], tmp_path) == 0
