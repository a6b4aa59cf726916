"""Run ``python -I -m agent.launcher --runtime-dir DIR [--cgroup-root DIR] [--leave-after S]``: see
:mod:`agent.launcher.server`.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from pathlib import Path

from agent.cgroup_root import cgroup2_mount, is_delegated, own_cgroup, wait_until_empty, was_made_by_launcher
from agent.launcher.server import Server
from penstock import paths

#: How long to wait for killed processes to end, mostly some milliseconds, before leaving their tree behind.
_EMPTY_TIMEOUT_S = 10


def main() -> int:
    """Run the launcher."""
    parser = argparse.ArgumentParser(prog="penstock-launcher")
    parser.add_argument("--runtime-dir", type=Path, required=True)
    parser.add_argument("--cgroup-root", type=Path, help="a cgroup v2 directory for the launcher (default: its unit's)")
    parser.add_argument(
        "--leave-after", type=float, help="end this many seconds after the last container and agent (default: never)"
    )
    arguments = parser.parse_args()
    os.closerange(3, 1024)  # close inherited descriptors; exec closes those opened from here on
    paths.make_private(arguments.runtime_dir, 0o755)
    root = arguments.cgroup_root
    made = root is not None and (not root.exists() or was_made_by_launcher(root))
    root = _settle(root)
    try:
        server = Server(arguments.runtime_dir / "launcher.sock", root, arguments.leave_after)
    except OSError as error:
        print(f"penstock-launcher: {error.filename}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 1
    signal.signal(signal.SIGTERM, server.stop)
    gc.collect()
    gc.freeze()  # so that no garbage collection writes to, and thereby copies, these pages in a child
    server.serve()
    server.end_all()  # like a stopped unit, the launcher ends its processes with itself
    if root is not None:
        _leave(root, made=made)
    return 0


def _settle(root: Path | None) -> Path | None:
    """Move into a leaf of the tree's root, so that the root holds no process; return None if there is no tree."""
    if root is None:
        mount = cgroup2_mount()
        if mount is None:
            return None
        own = own_cgroup(mount)
        if not is_delegated(own):
            return None
        root = own
    holder = root / "holder"
    try:
        holder.mkdir(parents=True, exist_ok=True)
        _enter(holder)
    except OSError as error:
        print(f"penstock-launcher: {holder}: {error.strerror}; limits are not enforced", file=sys.stderr)  # noqa: T201
        return None
    return root


def _enter(cgroup: Path) -> None:
    with (cgroup / "cgroup.procs").open("r+b", buffering=0) as procs:  # never creates it
        procs.write(b"0")


def _leave(root: Path, *, made: bool) -> None:
    """Remove the containers' cgroups, and the whole tree if the launcher created it."""
    try:
        if made:
            _enter(root.parent)
        left = root if made else root / "containers"
        if left.exists():
            wait_until_empty(left, _EMPTY_TIMEOUT_S)
            for directory in sorted(left.rglob("*/"), reverse=True):  # children first
                directory.rmdir()
            left.rmdir()
    except OSError as error:
        print(f"penstock-launcher: {root} is left behind: {error.strerror}", file=sys.stderr)  # noqa: T201


sys.exit(main())
