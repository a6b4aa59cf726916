"""Imported last by the process that daemons are forked from: in these, garbage collection skips the imported modules.

Else an agent's collection at its start touches all of it, and the kernel copies these pages: an agent started in 0.25 s
of processor time, and in 0.1 s since (28 November 2026).
"""

import gc

gc.collect()
gc.freeze()
