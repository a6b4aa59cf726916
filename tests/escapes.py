"""Commands that do their utmost to outlive their container, and the proof that they do not."""

from __future__ import annotations

import asyncio
import os
import pwd
import select
from pathlib import Path

from agent.launcher import Exited, Launcher, Start

TIMEOUT_S = 120
_PROLOGUE = "import os, signal, subprocess, sys, time\ncgroup = sys.argv[1]\n"
_EPILOGUE = "\nos.write(1, b'up\\n')\nwhile True:\n    time.sleep(1000)\n"
#: The action of each before it prints that it is up and goes on. All of them keep standard output.
ESCAPES = {
    "a daemon that forked twice": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        while True:
            time.sleep(1000)
    os._exit(0)
os.wait()
""",
    "a session of its own": "subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "children in groups of their own": "[subprocess.Popen(['sleep', '1000'], process_group=0) for _ in range(20)]",
    # 16 processes that fork as fast as they can; where pids.max is low, they hit it all the time.
    "a fork bomb": """
for _ in range(4):
    try:
        os.fork()
    except OSError:
        pass
if os.getpid() != os.getsid(0):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        try:
            if os.fork() == 0:
                os._exit(0)
        except OSError:
            pass
""",
    "deaf to every signal": """
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
""",
    "blocking every signal": "signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())",
    "a child that is stopped": "os.kill(subprocess.Popen(['sleep', '1000']).pid, signal.SIGSTOP)",
    "a cgroup below its own": """
os.mkdir(cgroup + "/below")
child = subprocess.Popen(['sleep', '1000'])
open(cgroup + "/below/cgroup.procs", "w").write(str(child.pid))
""",
    "a frozen cgroup below its own": """
os.mkdir(cgroup + "/below")
child = subprocess.Popen(['sleep', '1000'])
open(cgroup + "/below/cgroup.procs", "w").write(str(child.pid))
open(cgroup + "/below/cgroup.freeze", "w").write("1")
""",
}


async def escape(launcher: Launcher, exits: asyncio.Queue[Exited], cgroup: Path, how: str) -> None:
    """Start it in an empty cgroup, kill the cgroup as a container is killed, and see that nothing of it is left."""
    argv = ["python3", "-ISc", _PROLOGUE + ESCAPES[how] + _EPILOGUE, str(cgroup)]
    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_RDWR)
    procs = os.open(cgroup / "cgroup.procs", os.O_WRONLY)
    user = pwd.getpwuid(os.geteuid()).pw_name
    try:
        start = Start(container="escapes", user=user, argv=argv, env={}, cwd="/")
        await launcher.start(start, procs_fd=procs, stdio=(nothing, writing, nothing))
    finally:
        for descriptor in (writing, nothing, procs):
            os.close(descriptor)
    with os.fdopen(reading, "rb", buffering=0) as output:
        assert await asyncio.to_thread(_read, output.fileno()) == b"up\n"
        (cgroup / "cgroup.kill").write_text("1")
        async with asyncio.timeout(TIMEOUT_S):
            exited = await exits.get()
        assert (exited.container, exited.signal) == ("escapes", 9)
        assert await asyncio.to_thread(_read, output.fileno()) == b"", "a process lives and holds on to its output"
    await asyncio.to_thread(wait_until_empty, cgroup)
    await launcher.acknowledge("escapes")
    assert exits.empty(), "its end is told once"
    assert await launcher.running() == []


def _read(descriptor: int) -> bytes:
    assert select.select([descriptor], [], [], TIMEOUT_S)[0], "nothing comes, and it does not end"
    return os.read(descriptor, 100)


def wait_until_empty(cgroup: Path) -> None:
    """Wait until no process lives in it; the kernel notifies by POLLPRI."""
    with (cgroup / "cgroup.events").open("rb", buffering=0) as events:
        watch = select.poll()
        watch.register(events, select.POLLPRI)
        while b"populated 1" in events.read(4096):
            assert watch.poll(TIMEOUT_S * 1000), "a process lives on"
            events.seek(0)
