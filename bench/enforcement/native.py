"""The measurements on this host, without a virtual machine: by root only."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.enforcement import files
from bench.enforcement.figures import Figure

_MBIT = (1, 10, 100, 500)


def network() -> Iterator[Figure]:
    """In namespaces of its own."""
    from bench.enforcement.network import SETTINGS, Network

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        with contextlib.closing(Network(Path(directory))) as made:
            yield from made.egress(_MBIT)
            yield from made.changed(20, 200)
            yield from made.ingress((10, 100))
        with contextlib.closing(Network(Path(directory), **SETTINGS)) as made:
            yield from made.shared()


PARTS: dict[str, Callable[[], Iterator[Figure]]] = {"native-network": network, "native-files": files.costs}
