"""Measure on this host instead of in the machine: make the users and files of the rounds, and remove them whatever
happens. ``python -m bench.mix.host`` removes the remains of a run that was killed.

All of these have names of the benchmark's, which ``door.py`` has found to be free. So everything with such a name is
removed, of users only those whose homes are in directories that were made for rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import psutil

from bench.mix import door, inputs, link, slurm
from bench.mix.guest import compile_packages
from bench.mix.jobs import USERS
from bench.mix.place import Place
from bench.mix.through_penstock import COMMAND
from bench.mix.ways import TOP_SLICES, equal_slice, fixed_slice, make_slices
from demo.node import NodeFailed
from tests.vm.__main__ import UNAVAILABLE

#: It is the benchmark's own. The inputs stay there.
DIRECTORY = Path("/var/cache/penstock-mix")
#: Users, slices and links are the host's, wherever the inputs are.
_LOCK = Path("/run/penstock-mix.lock")
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TERM_TIMEOUT_S, _KILL_TIMEOUT_S = 20.0, 10.0
#: Of directories where programs leave files of their users'.
_SHARED = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
_SLICES = [name(user) for name in (equal_slice, fixed_slice) for user in USERS]
_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin")

Use = Callable[[Place, list[str]], int]


def measured(directory: Path, asked: str | None, default: str, use: Use) -> int:
    """Measure on this host in the ways asked for, else in those of ``default`` that it can have; return the status.

    It is 69 where the host lacks something, or is being measured; nothing has been changed then.
    """
    directory = directory.resolve()
    if os.geteuid() != 0:  # it is refused
        return _measured(directory, asked, default, use)
    with alone() as is_alone:
        return _measured(directory, asked, default, use) if is_alone else UNAVAILABLE


@contextlib.contextmanager
def alone() -> Iterator[bool]:
    """Keep other measurements from this host inside the block; False, and a line: one runs already."""
    with _LOCK.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_alone = True
        except BlockingIOError:
            say("this host is being measured already: wait until that has ended, or end it")
            is_alone = False
        yield is_alone


def _measured(directory: Path, asked: str | None, default: str, use: Use) -> int:
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), *_PATH])
    os.umask(0o022)
    found = door.look(directory)
    ways = (asked or default).split(",")
    if asked is None and (why := door.of_slurm(found)):
        ways = [way for way in ways if way not in slurm.OVERSUBSCRIBE]
        say(f"without {', '.join(slurm.OVERSUBSCRIBE)}: {why[0]}")
    if faults := door.refusals(found, ways, directory):
        for fault in faults:
            say(fault)
        return UNAVAILABLE
    for each in _ENDS[1:]:
        signal.signal(each, _ended)
    try:
        inputs.prepare(directory, say)
        with made(directory) as place:
            return use(place, ways)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (NodeFailed, slurm.SlurmError, OSError) as error:
        say(str(error))
    except subprocess.CalledProcessError as error:
        say(f"status {error.returncode} from {error.cmd[0]}")
    return 1


def say(line: str) -> None:
    """Report it to the operator, whose terminal may be gone."""
    with contextlib.suppress(OSError):
        print(f"bench.mix: {line}", file=sys.stderr, flush=True)


def _ended(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)


@contextlib.contextmanager
def made(directory: Path) -> Iterator[Place]:
    """Make users, slices and a directory for the output of jobs, for the time of the block.

    Raises:
        subprocess.CalledProcessError: one of them cannot be made.
    """
    compile_packages()
    work = Path(tempfile.mkdtemp(prefix=door.ROUNDS, dir=directory))
    try:
        work.chmod(0o755)
        # Dask, of root in the calibration and of the users in the rounds, leaves files in /tmp otherwise.
        os.environ["DASK_TEMPORARY_DIRECTORY"] = str(work / "dask")
        (work / "dask").mkdir()
        (work / "dask").chmod(0o1777)
        for user in USERS:
            home = ["--create-home", "--home-dir", str(work / "home" / user), "--user-group"]
            (work / "home").mkdir(exist_ok=True)
            subprocess.run(["useradd", *home, user], check=True)
        make_slices(os.cpu_count() or 1)
        # Slices with properties have cgroups, which systemd removes when it stops a slice that was started.
        subprocess.run(["systemctl", "start", *_SLICES], check=True)
        yield Place(directory, work)
    finally:
        before = [signal.signal(each, signal.SIG_IGN) for each in _ENDS]
        try:
            say("removing users, slices and directories of the run")
            remove(directory)
        finally:
            for each, handler in zip(_ENDS, before, strict=True):
                signal.signal(each, handler)


def remove(directory: Path) -> bool:
    """Remove everything that was made, and report failures; return whether nothing is left."""
    users, works = door.users_of(directory), list(directory.glob(f"{door.ROUNDS}*"))
    of_users = set(users.values())
    with _going_on("processes"):
        end_processes(of_users, works)
    for work in works:
        with _going_on("Penstock"):
            _remove_penstock(work)
    with _going_on("Slurm"):
        if slurm.is_left():
            slurm.remove()
    with _going_on("slices"):
        for command in (["revert", *_SLICES], ["stop", *TOP_SLICES]):
            subprocess.run(["systemctl", "--quiet", *command], check=False)
    for shared in _SHARED:
        with _going_on(f"files in {shared}"):
            remove_files(shared, of_users)
    with _going_on("users"):
        for user in users:
            subprocess.run(["userdel", "--remove", user], stderr=subprocess.DEVNULL, check=False)
    with _going_on("the network"):
        link.remove()
    for work in (*works, *directory.glob(f"{inputs.MAKING}*")):
        shutil.rmtree(work, ignore_errors=True)
    left = list(door.left(directory))
    for name in left:
        say(f"{name} could not be removed")
    return not left


@contextlib.contextmanager
def _going_on(what: str) -> Iterator[None]:
    """Report the failure of this step, so that the next ones are made, too."""
    try:
        yield
    except (OSError, psutil.Error) as error:
        say(f"removing {what}: {error}")


def end_processes(of_users: set[int], works: Sequence[Path]) -> None:
    """End the processes of these users, and the daemons of Penstock in these directories; wait until they are gone.

    They get a SIGTERM, at which the daemons remove their temporary files, then as many SIGKILL as it takes.
    """
    how, until_s = psutil.Process.terminate, time.monotonic() + _TERM_TIMEOUT_S + _KILL_TIMEOUT_S
    timeout_s = _TERM_TIMEOUT_S
    while found := [each for each in psutil.process_iter() if _is_ours(each, of_users, works)]:
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                how(process)
        psutil.wait_procs(found, timeout_s)
        if time.monotonic() > until_s:
            return
        how, timeout_s = psutil.Process.kill, _KILL_TIMEOUT_S


def _is_ours(process: psutil.Process, of_users: set[int], works: Sequence[Path]) -> bool:
    try:
        if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        if process.uids().real in of_users:
            return True
        runtime = process.environ().get("PENSTOCK_RUNTIME_DIR", "")
    except psutil.Error:
        return False  # it ended meanwhile, or is the kernel's
    return any(Path(runtime).is_relative_to(work) for work in works)


def _remove_penstock(work: Path) -> None:
    """Remove the remains of killed daemons, such as traffic control; those that ended in order leave nothing."""
    for log in work.rglob("penstock.log"):
        own = {"PENSTOCK_RUNTIME_DIR": str(log.with_name("run")), "PENSTOCK_STATE_DIR": str(log.with_name("state"))}
        # Without --kill, which ends containers and launchers of other agents, too: ours have been ended.
        argv = [COMMAND, "uninstall"]
        done = subprocess.run(argv, env=os.environ | own, capture_output=True, text=True, check=False)
        for line in done.stderr.splitlines():
            say(line)


def remove_files(directory: Path, of_users: set[int]) -> None:
    """Remove the files of these users in a directory that others use, too."""
    for each in directory.iterdir() if directory.is_dir() else ():
        with contextlib.suppress(OSError):
            if each.lstat().st_uid not in of_users:
                continue
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()


def main(arguments: list[str]) -> int:
    """Remove the remains of a run that was killed."""
    parser = argparse.ArgumentParser(prog="python -m bench.mix.host", description=main.__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=DIRECTORY, metavar="DIR", help="[%(default)s]")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        parser.error("users and slices are removed by root only: run it with sudo")
    directory = options.directory.resolve()
    with alone() as is_alone:
        if not is_alone:
            return UNAVAILABLE
        is_removed = remove(directory)
    for name in door.others(directory):
        say(f"{name} is not of a run in {directory}, and stays")
    return 0 if is_removed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
