"""``penstock follow``: make a container's limits follow a profile, slot by slot."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.cli import arguments
from penstock.cli.errors import usage_error
from penstock.cli.limits import add_strict
from penstock.cli.session import asked
from penstock.model.decode_errors import told
from penstock.model.floors import profile_too_small
from penstock.model.profile import Profile
from penstock.wire.agent_api import Follow
from penstock.wire.agent_methods import FOLLOW

_EXAMPLE = """FILE.json has a value for each slot of slot_s seconds; resources without values keep their limits:
  {"slot_s": 3, "cpu_cores": [0.5, 2, 1], "memory_bytes": [67108864, 268435456],
   "disk_bytes_per_s": [10000000], "network_bytes_per_s": [12500000]}
A resource's last value holds from then on."""


def main(argv: list[str]) -> int:
    """Run the command."""
    parser = arguments.Parser("follow", "Make the limits of a container follow a profile from now on.", _EXAMPLE)
    parser.add_argument("container", metavar="CONTAINER", help="its id, as `penstock status` shows it")
    parser.add_argument("profile", metavar="FILE.json", help="the profile; none: keep the limits as they are now")
    add_strict(parser)
    options = parser.parse_args(argv)
    profile = None if options.profile == "none" else _read(Path(options.profile))
    wanted = Follow(container=options.container, profile=profile, strict=options.strict)
    asked("follow", lambda agent: agent.ask(FOLLOW, wanted), named="container")
    return 0


def _read(path: Path) -> Profile:
    """Read a profile from a file.

    Raises:
        CommandError: there is no valid profile; the message names the file and the error.
    """
    try:
        profile = msgspec.json.decode(path.read_bytes(), type=Profile)
    except OSError as error:
        raise usage_error(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise usage_error(f"{path}: {told(error, Profile)}") from None
    for resource, wrong, remedy in profile_too_small(profile):
        raise usage_error(f"{path}: {resource}: {wrong}; {remedy}")
    return profile
