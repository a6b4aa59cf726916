"""``python -m bench.mix``: run the same jobs in each way in the virtual machine, print a table.

Exit status: 0; 69 where this host cannot have the machine, 71 if it would not boot; else what the command ended with.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.mix.machine import MixMachine
from bench.mix.ways import ORDERS, WAYS, exists
from tests.vm import checkout
from tests.vm.__main__ import NO_BOOT, UNAVAILABLE, require_machine
from tests.vm.host import UnavailableError, say
from tests.vm.remote import BootError, Remote
from tests.vm.user_mode import Network

_PROCESSORS = 2
_MOST_MINUTES = 600
_MOST_SEEDS = 100


def ways(text: str) -> str:
    """Names of ways, separated by commas."""
    for name in text.split(","):
        if not exists(name):
            known = f"{', '.join(WAYS)}, or penstock-ORDER[-known] with an order of {', '.join(ORDERS)}"
            raise argparse.ArgumentTypeError(f"{name!r} is none of {known}")
    return text


def minutes(text: str) -> float:
    """A window in which a plan has jobs."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= _MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {_MOST_MINUTES}")
    return value


def seeds(text: str) -> int:
    """A number of plans."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {_MOST_SEEDS}")
    return int(text)


def main(arguments: list[str]) -> int:
    """Boot the machine and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.mix", description=__doc__)
    parser.add_argument("--memory", type=int, default=4096, metavar="MIB", help="the machine's memory [4096]")
    parser.add_argument("--ways", type=ways, default=",".join(WAYS), metavar="WAY,…", help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the plan [1]")
    parser.add_argument("--seeds", type=seeds, default=1, metavar="N", help="plans, with seeds that follow [1]")
    parser.add_argument("--minutes", type=minutes, default=6.0, metavar="M", help="of arrivals, one or more [6]")
    options = parser.parse_args(arguments)
    try:
        require_machine(user_mode=True)
        with checkout.machine_with_checkout(lambda: _machine(options.memory)) as machine:
            guest = f"{checkout.VENV}/bin/python -m bench.mix.guest --ways {shlex.quote(options.ways)}"
            settings = f"--seed {options.seed} --seeds {options.seeds} --window-s {60 * options.minutes}"
            return machine.stream(f"cd {checkout.REMOTE} && {guest} {settings}")
    except UnavailableError as error:
        say(f"no virtual machine on this host: {error}")
        return UNAVAILABLE
    except BootError as error:
        say(str(error))
        return NO_BOOT


@contextmanager
def _machine(memory_mib: int) -> Iterator[Remote]:
    with Network() as network, MixMachine(network, 1, memory_mib=memory_mib, processors=_PROCESSORS) as machine:
        yield machine


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
