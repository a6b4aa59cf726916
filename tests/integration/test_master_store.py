"""The master's store, where nobody has named one: on a host that has never seen Penstock."""

from __future__ import annotations

from pathlib import Path

from tests.integration.conftest import start


def test_the_first_start_makes_the_directory_of_the_store(tmp_path: Path) -> None:
    state = tmp_path / "not" / "there"
    arguments = ("--set", "http=127.0.0.1:0")
    master = start("master", tmp_path, *arguments, environment={"PENSTOCK_STATE_DIR": str(state)})
    try:
        assert b'"reservations":[]' in master.get("/reservations")
        assert (state / "master.db").exists()
    finally:
        assert master.stop() == 0
