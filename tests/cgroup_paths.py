"""The cgroup of a container, found beside cgroups of other tests, which come and go meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

from agent.cgroup_root import is_group


def container_cgroup(mount: Path, container: str) -> Path | None:
    """Return the directory of a container below a mount of cgroup2; None where there is none.

    ``Path.glob`` raises an error where a directory goes while it is looked into; ``os.walk`` passes over it.
    """
    for directory, children, _ in os.walk(mount):
        if container in children and _holds_containers(Path(directory)):
            return Path(directory) / container
    return None


def _holds_containers(directory: Path) -> bool:
    """Whether it is ``containers/``, or a group of containers in it."""
    return directory.name == "containers" or (is_group(directory.name) and _holds_containers(directory.parent))
