"""``python -I -m master``."""

import sys

from master.command import main

sys.exit(main(sys.argv[1:]))
