"""The meaning of the options of run, adopt and resize."""

from __future__ import annotations

import argparse
import signal
from typing import Any

import pytest

from penstock.cli import arguments
from penstock.cli.errors import CommandError
from penstock.cli.limits import add_class, add_limits, changes, specification, strict_by_option, warn
from penstock.cli.session import failures_told
from penstock.model.container import Choice, Limits, Notice
from penstock.wire.errors import refused


def parse(*argv: str, removable: bool = False) -> argparse.Namespace:
    parser = arguments.Parser("x", "x")
    add_limits(parser, removable=removable)
    add_class(parser)
    return parser.parse_args(argv)


@pytest.mark.parametrize(
    ("argv", "limits"),
    [
        ([], {}),
        (["--cpu", "0.5", "--burst", "20ms"], {"cpu_cores": 0.5, "cpu_burst_s": 0.02}),
        (["--cpus", "0-3,8"], {"cpus": "0-3,8"}),
        (["--memory", "1G"], {"memory_max_bytes": 1 << 30}),
        (["--memory", "1G", "--memory-policy", "throttle"], {"memory_high_bytes": 1 << 30}),
        (["--disk", "10MB/s"], {"disk_read_bytes_per_s": 10**7, "disk_write_bytes_per_s": 10**7}),
        (["--disk-ops", "100"], {"disk_read_ops_per_s": 100, "disk_write_ops_per_s": 100}),
        (
            ["--net", "8Mbit/s", "--net-in", "16Mbit/s"],
            {"network_egress_bytes_per_s": 10**6, "network_ingress_bytes_per_s": 2 * 10**6},
        ),
        (["--pids", "64"], {"pids_max": 64}),
    ],
)
def test_limits(argv: list[str], limits: dict[str, Any]) -> None:
    spec = specification(parse(*argv), ("x",))
    assert spec.limits == Limits(**limits)
    # Its limit is its promise, as far as that can be promised.
    assert spec.cpu_cores == limits.get("cpu_cores", 0)
    assert spec.memory_bytes == limits.get("memory_max_bytes", limits.get("memory_high_bytes", 0))


def test_class() -> None:
    argv = ["--opportunistic", "--preempt", "prefer", "--notice", "USR1:10s", "--oom-group", "--promise-net", "8Mbit"]
    spec = specification(parse(*argv, "--name", "n"), ("a", "b"), detach=True)
    assert (spec.argv, spec.name) == (("a", "b"), "n")
    assert spec.detach and spec.opportunistic and spec.oom_group
    assert spec.preempt is Choice.PREFER
    assert spec.notice == Notice(signal=signal.SIGUSR1, grace_s=10)
    assert spec.network_bytes_per_s == 10**6
    default = specification(parse(), ("a",))
    assert (default.preempt, default.notice, default.network_bytes_per_s) == (Choice.NORMAL, None, 0)


@pytest.mark.parametrize("text", ["USR1", "SIGUSR1", "usr1", "10", "10:5", "SIGUSR1:5000ms"])
def test_notice(text: str) -> None:
    assert arguments.notice(text) == Notice(signal=signal.SIGUSR1, grace_s=5)


def test_limits_without_an_option_do_not_change() -> None:
    assert changes(parse(removable=True)) == {}
    assert changes(parse("--net", "1M", removable=True)) == {"network_egress_bytes_per_s": 1 << 20}


def test_a_limit_is_removed() -> None:
    assert changes(parse("--cpu", "none", "--disk", "none", removable=True)) == {
        "cpu_cores": None, "disk_read_bytes_per_s": None, "disk_write_bytes_per_s": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "high", "hard"),
    [
        (["--memory", "1G"], None, 1 << 30),
        (["--memory", "1G", "--memory-policy", "throttle"], 1 << 30, None),
        (["--memory", "none"], None, None),
    ],
)
def test_memory_has_one_policy(argv: list[str], high: int | None, hard: int | None) -> None:
    """It replaces any earlier one."""
    assert changes(parse(*argv, removable=True)) == {"memory_high_bytes": high, "memory_max_bytes": hard}


def test_each_option_that_is_not_enforced_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    why = {"disk_read_ops_per_s": "no io", "disk_write_ops_per_s": "no io", "memory_high_bytes": "no memory", "y": "z"}
    why |= {"network_egress_bytes_per_s on eth0": "no htb", "network_rate_bytes_per_s on wan.7": "no htb"}
    warn("resize", why)
    assert capsys.readouterr().err.splitlines() == [
        "penstock resize: --disk-ops is not enforced: no io",
        "penstock resize: --memory is not enforced: no memory",
        "penstock resize: y is not enforced: z",
        "penstock resize: --net on eth0 is not enforced: no htb",
        "penstock resize: --promise-net on wan.7 is not enforced: no htb",
    ]


@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        (
            "nothing was changed: memory_max_bytes is not enforced: no controller",
            "changed: --memory is not enforced: no",
        ),
        ("nothing was changed: disk_read_ops_per_s is not enforced: no", "changed: --disk-ops is not enforced: no"),
        (
            "nothing was changed: network_egress_bytes_per_s on eth0 is not enforced: no htb",
            "changed: --net on eth0 is not enforced: no htb",
        ),
        (
            "limits are strict: network_rate_bytes_per_s on wan.7 is not enforced: no htb",
            "strict: --promise-net on wan.7 is not enforced: no htb",
        ),
        ("nothing was changed: cpu_weight is not enforced: no", "changed: cpu_weight is not enforced: no"),
        ("container: memory_max_bytes is unknown", "container: memory_max_bytes is unknown"),
    ],
)
def test_an_older_agent_s_strict_limit_has_the_name_of_its_option(agent: str, shown: str) -> None:
    with pytest.raises(CommandError, match=shown) as caught, strict_by_option():
        raise CommandError(agent, status=7, of_command=False)
    assert (caught.value.status, caught.value.of_command) == (7, False)


@pytest.mark.parametrize(
    ("limit", "agent", "shown"),
    [
        ("memory_max_bytes", "strict, and memory_max_bytes has no effect", "strict, and --memory has no effect"),
        ("network_egress_bytes_per_s on eth0", "no network_egress_bytes_per_s on eth0", "no --net on eth0"),
        ("oom_group", "x is not enforced: oom_group", "x is not enforced: --oom-group"),
        ("cpu_weight", "strict: cpu_weight has no effect", "strict: cpu_weight has no effect"),
    ],
)
def test_a_strict_limit_that_is_not_enforced_has_the_name_of_its_option(limit: str, agent: str, shown: str) -> None:
    """The agent names the limit in a field; its message may be in any words."""
    with pytest.raises(CommandError) as caught, strict_by_option(), failures_told():
        raise refused(agent, limit=limit)
    assert str(caught.value) == shown
