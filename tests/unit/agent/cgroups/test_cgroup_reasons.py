"""Why a controller is not there, from what /proc/cgroups says."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cgroups.reason import Reason, unavailable

HEADER = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("memory\t0\t5\t1", "the memory controller is not delegated to /ours"),
        ("memory\t4\t5\t1", "the memory controller is bound to cgroup v1"),
        ("memory\t0\t5\t0", "the memory controller was disabled at boot"),
        ("cpu\t0\t5\t1", "this kernel has no memory controller"),
    ],
)
def test_why_a_controller_is_missing(tmp_path: Path, line: str, why: str) -> None:
    table = tmp_path / "cgroups"
    table.write_text(f"{HEADER}{line}\n")
    reason = unavailable(["memory"], "/ours", table)["memory"]
    assert reason.why == why
    assert reason.remedy


def test_io_is_called_blkio_there(tmp_path: Path) -> None:
    table = tmp_path / "cgroups"
    table.write_text(f"{HEADER}blkio\t7\t1\t1\n")
    assert unavailable(["io"], "/ours", table)["io"].why == "the io controller is bound to cgroup v1"


def test_a_kernel_without_version_1_has_no_such_table(tmp_path: Path) -> None:
    assert "not delegated" in unavailable(["io"], "/ours", tmp_path / "nowhere")["io"].why


def test_a_reason_is_a_line() -> None:
    assert str(Reason("why")) == "why"
    assert str(Reason("why", "do this")) == "why; remedy: do this"
