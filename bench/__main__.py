"""``python -m bench [NAME…]``: every benchmark of this package, or those named, one after the other."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence

import bench


def main(arguments: Sequence[str]) -> int:
    """Run the named benchmarks; return the largest exit status of all; 2 for an unknown name."""
    known = sorted(name for _, name, _ in pkgutil.iter_modules(bench.__path__) if not name.startswith("_"))
    for name in arguments:
        if name not in known:
            print(f"bench: no benchmark {name!r}; there are: {', '.join(known)}", file=sys.stderr)
            return 2
    status = 0
    sys.argv[1:] = []  # names are for this command; benchmarks with options are called directly
    for name in arguments or known:
        print(f"== {name}", flush=True)
        status = max(status, importlib.import_module(f"bench.{name}").main() or 0)
        print()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
