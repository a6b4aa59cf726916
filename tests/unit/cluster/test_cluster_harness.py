"""The parts of the harness for three machines that can be tested without booting any."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.cluster.machines import build_wheel, recap


def test_the_recap_of_a_play_is_read_by_host() -> None:
    said = (
        "PLAY RECAP *****\n"
        "one.penstock.test          : ok=14   changed=2    unreachable=0    failed=0\n"
        "two.penstock.test          : ok=3    changed=0    unreachable=1    failed=0\n"
    )
    assert recap(said) == {
        "one.penstock.test": {"ok": 14, "changed": 2, "unreachable": 0, "failed": 0},
        "two.penstock.test": {"ok": 3, "changed": 0, "unreachable": 1, "failed": 0},
    }


def test_a_wheel_can_be_of_another_version(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, "9.8.7")
    with zipfile.ZipFile(wheel) as archive:
        assert b'__version__ = "9.8.7"' in archive.read("penstock/__init__.py")
        assert b"Version: 9.8.7\n" in archive.read("penstock-9.8.7.dist-info/METADATA")
