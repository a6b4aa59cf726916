"""Do limits bind, is promised work left alone, how fast is memory free again: on a real kernel, through a real agent.

``python -m bench.enforcement`` boots the project's virtual machine, measures there (and two parts on this host, too),
writes the tables of each part into its page, and ends with status 1 if a bar is missed. With PARTs it measures these.
"""

from __future__ import annotations


def main() -> int:
    """All of it; the exit status."""
    from bench.enforcement.command import main as command

    return command([])
