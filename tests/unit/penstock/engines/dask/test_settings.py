"""Dask's configuration, read for Penstock."""

from __future__ import annotations

from pathlib import Path

import pytest

dask = pytest.importorskip("dask")

from penstock.engines.dask.settings import Settings  # noqa: E402


def test_without_a_word_there_are_defaults() -> None:
    with dask.config.set({"penstock": None}):
        assert Settings.from_config() == Settings()
    assert Settings().socket_path() is None


def test_keys_are_written_with_hyphens_or_underscores() -> None:
    with dask.config.set({"penstock.patience-s": 0.25, "penstock.socket": "/run/a.sock", "penstock.share_job": False}):
        settings = Settings.from_config()
    assert (settings.patience_s, settings.socket_path(), settings.share_job) == (0.25, Path("/run/a.sock"), False)


def test_what_is_given_goes_before_the_configuration() -> None:
    with dask.config.set({"penstock.job": "theirs", "penstock.priority": 2.0}):
        settings = Settings.from_config(job="mine")
    assert (settings.job, settings.priority) == ("mine", 2.0)


def test_an_unknown_key_names_the_nearest() -> None:
    with (
        dask.config.set({"penstock.patiense-s": 1}),
        pytest.raises(ValueError, match=r"penstock\.patiense_s; did you mean penstock\.patience_s"),
    ):
        Settings.from_config()
