"""The cluster of all tests here, which build on each other in the order of its life."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.machines import NAMES, Cluster, bare_cluster, build_wheel

#: The files, in that order.
_LIFE = ("test_installing", "test_running", "test_upgrading", "test_uninstalling")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By the order of the cluster's life, not by the alphabet's."""
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    here.sort(key=lambda item: _LIFE.index(item.path.stem))
    items[:] = [item for item in items if item not in here] + here
    for item in here:
        item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three bare machines; the files before the installation are in ``bare``."""
    directory = tmp_path_factory.mktemp("cluster")
    wheel = build_wheel(directory, "0.1.0+old")
    with bare_cluster(directory) as cluster:
        cluster.variables = {
            "penstock_venv_wheel": str(wheel),
            "penstock_venv_wheelhouse": "/opt/wheelhouse",
            "penstock_venv_extras": ["agent", "master"],  # the image has no scikit-learn; forecasts are by neighbours
            "penstock_ca_directory": str(directory / "ca"),
            "penstock_master_http": "0.0.0.0:7422",
            # Beside other tests a machine stalls for longer than a node may be silent by default.
            "penstock_master_config": {"node_timeout_s": "2min"},
        }
        # Only the first machine has everything installed by pip, which takes a minute there.
        cluster.of_one = {name: {"penstock_venv_former": "/opt/venv"} for name in NAMES[1:]}
        yield cluster


@pytest.fixture(scope="session")
def bare(cluster: Cluster) -> dict[str, list[str]]:
    """Return the state of each machine before the installation."""
    return cluster.survey()
