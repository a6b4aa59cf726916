"""``python -m tests.walk FLOW``: the functions that a flow calls, indented by depth, and their numbers."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.walk.flows import FLOWS
from tests.walk.report import summary, tree
from tests.walk.sharing import product, sharing


def main(argv: list[str]) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.walk", description=__doc__)
    parser.add_argument("flow", choices=list(FLOWS), help="the flow to walk")
    parser.add_argument("--summary", action="store_true", help="print the last line only")
    parser.add_argument("--shared", action="store_true", help="also print how many functions are used elsewhere, too")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="penstock-walk-") as directory:
        walk = FLOWS[options.flow](Path(directory))
    if not options.summary:
        print(tree(walk))
    print(summary(options.flow, walk))
    if options.shared:
        print(sharing({call.name for call in walk.calls if not call.resumed}, product()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
