"""``make demo``: on this host where it has cgroup v2 controllers, else in the project's virtual machine.

``DEMO=host`` forces the host, ``DEMO=qemu`` the machine under QEMU; ``INPUT=DIR`` is text of one's own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from agent.cgroup_root import cgroup2_mount
from demo import origin, picture
from demo.__main__ import main as demonstrate
from tests.vm.__main__ import NO_BOOT, UNAVAILABLE

OUT = "demo-out"
#: Emulation takes ten to thirty times the processor time.
_EMULATED_MEGABYTES = 10
#: User mode computes as fast as the host, but maps memory slower.
_USER_MODE_MEGABYTES = 60
_USER_MODE_MIB = 5120
_NEEDED = {"cpu", "memory"}


def missing_controllers() -> set[str]:
    """The cgroup v2 controllers that the demo needs and this host does not have."""
    mount = cgroup2_mount()
    if mount is None:
        return set(_NEEDED)
    try:
        return _NEEDED - set((mount / "cgroup.controllers").read_text(encoding="ascii").split())
    except OSError:
        return set(_NEEDED)


def machine_command(source: str, *, user_mode: bool) -> list[str]:
    """Return the command that runs the same demo in a virtual machine, which forwards port 7421 of its loopback."""
    run = [sys.executable, "-m", "tests.vm", "run", "--copy-out", f"{OUT}:{OUT}"]
    inside = ["python", "-m", "demo", "--out", OUT, "--http", "127.0.0.1:7421", "--commit", origin.commit()]
    inside += ["--machine", f"{'user-mode Linux' if user_mode else 'emulated by QEMU'} on {origin.machine()}"]
    inside += ["--megabytes", str(_USER_MODE_MEGABYTES if user_mode else _EMULATED_MEGABYTES)]
    if user_mode:
        run += ["--user-mode", "--memory", str(_USER_MODE_MIB)]
    if source:
        run += ["--copy-in", f"{source}:demo-input"]
        inside += ["--input", "demo-input"]
    return [*run, "--", *inside]


def main(environment: Mapping[str, str]) -> int:
    """The exit status of the demo."""
    where, source = environment.get("DEMO", ""), environment.get("INPUT", "")
    if where not in {"", "host", "qemu"}:
        print(f"DEMO={where}: host or qemu, or nothing", file=sys.stderr)
        return 2
    if source and not Path(source).is_dir():
        print(f"INPUT={source}: not a directory", file=sys.stderr)
        return 2
    missing = missing_controllers()
    if where == "host" or not (where or missing):
        return demonstrate(["--out", OUT, *(["--input", source] if source else [])])
    if where == "qemu":
        return _drawn(_in_machine(source, user_mode=False))
    print(
        f"This host has no cgroup v2 controllers ({', '.join(sorted(missing))}): the demo runs in a small virtual "
        "machine instead (DEMO=host runs it here, without limits).",
        flush=True,
    )
    status = _in_machine(source, user_mode=True)
    if status in {UNAVAILABLE, NO_BOOT}:
        print("No user-mode machine here (see above): the demo runs under QEMU, slower, with less text.", flush=True)
        status = _in_machine(source, user_mode=False)
    if status == UNAVAILABLE:
        print("DEMO=host make demo runs it on this host without limits.", file=sys.stderr)
    return _drawn(status)


def _drawn(status: int) -> int:
    """Draw the records of a machine where the demo succeeded; return the status of both."""
    if status == 0:
        status = picture.main([f"{OUT}/timeline.json", f"{OUT}/timeline.png"])
        print(f"on this host: {OUT}/report.json, {OUT}/timeline.png")
    return status


def _in_machine(source: str, *, user_mode: bool) -> int:
    # A Ctrl-C reaches the machine's harness, too, which stops the machine; we wait for that.
    signal.signal(signal.SIGINT, lambda *_: None)
    with subprocess.Popen(machine_command(source, user_mode=user_mode)) as process:
        return process.wait()


if __name__ == "__main__":
    sys.exit(main(os.environ))
