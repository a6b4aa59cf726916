"""Dask's configuration, read for Penstock."""

from __future__ import annotations

from pathlib import Path

import pytest

dask = pytest.importorskip("dask")

from penstock.engines.dask.plugin import PenstockSchedulerPlugin, PenstockWorkerPlugin  # noqa: E402
from penstock.engines.dask.settings import Settings  # noqa: E402


def test_without_a_word_there_are_defaults() -> None:
    with dask.config.set({"penstock": None}):
        assert Settings.from_config() == Settings()
    assert Settings().socket_path() is None


def test_keys_are_written_with_hyphens_or_underscores() -> None:
    with dask.config.set({"penstock.patience-s": 0.25, "penstock.socket": "/run/a.sock", "penstock.share_job": False}):
        settings = Settings.from_config()
    assert (settings.patience_s, settings.socket_path(), settings.share_job) == (0.25, Path("/run/a.sock"), False)


def test_arguments_go_before_the_configuration() -> None:
    with dask.config.set({"penstock.job": "theirs", "penstock.priority": 2.0}):
        settings = Settings.from_config(job="mine")
    assert (settings.job, settings.priority) == ("mine", 2.0)


def test_an_unknown_key_names_the_nearest() -> None:
    with (
        dask.config.set({"penstock.patiense-s": 1}),
        pytest.raises(ValueError, match=r"penstock\.patiense_s; did you mean penstock\.patience_s"),
    ):
        Settings.from_config()


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("patience_s", "soon", "a number, not 'soon'"),
        ("patience_s", -1, "not be negative: -1"),
        ("priority", float("inf"), "a finite number, not inf"),
        ("memory_bytes", 1.5, "a whole number of bytes, not 1.5"),
        ("enabled", "yes", "true or false, not 'yes'"),
        ("socket", ["a"], r"text, not \['a'\]"),
    ],
)
def test_a_value_that_cannot_be_names_the_key(key: str, value: object, says: str) -> None:
    with (
        dask.config.set({f"penstock.{key}": value}),
        pytest.raises(ValueError, match=rf"^penstock\.{key} in Dask's configuration must (be )?{says}$"),
    ):
        Settings.from_config()


def test_words_that_look_like_numbers_are_words() -> None:
    with dask.config.set({"penstock.job": 17, "penstock.priority": -1}):
        assert Settings.from_config() == Settings(job="17", priority=-1.0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"patience_s": "x"}, "patience_s must be a number, not 'x'"),
        ({"memory_bytes": -1}, "memory_bytes must be a whole number of bytes, not -1"),
        ({"rank": "no"}, "rank must be true or false, not 'no'"),
        ({"patiense_s": 1}, r"no such key: patiense_s; did you mean patience_s\?"),
    ],
)
def test_arguments_of_a_plugin_are_checked_where_it_is_made(given: dict[str, object], says: str) -> None:
    for plugin in (PenstockWorkerPlugin, PenstockSchedulerPlugin):
        with pytest.raises(ValueError, match=rf"^{says}$"):
            plugin(**given)


def test_a_configuration_that_is_no_table_is_reported() -> None:
    with (
        dask.config.set({"penstock": "x"}),
        pytest.raises(ValueError, match=r"^penstock in Dask's configuration must be a table of keys, not 'x'$"),
    ):
        Settings.from_config()
