"""Nice values of a container's processes: what orders jobs where no cpu controller weighs their cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

PROC = Path("/proc")


def renice(session: int, nice: int, proc: Path = PROC) -> str:
    """Give every process of a session a nice value; return what cannot be done, and why, or nothing.

    The launcher starts each container in a session of its own. Where the kernel weighs sessions (sched(7), autogroup,
    Linux 2.6.38), a nice value counts within the session only, and the session's own counts between sessions: so both
    are set. Lowering one needs CAP_SYS_NICE, as does setting another user's.
    """
    try:
        if os.getsid(session) != session:
            return f"process {session} leads no session"  # it was adopted: others are in its session
        (proc / str(session) / "autogroup").write_text(str(nice))
    except (FileNotFoundError, ProcessLookupError):
        pass  # a kernel without it, or nobody is left
    except OSError as error:
        return f"the session {session} cannot be weighed: {error.strerror}"
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == session:
                os.setpriority(os.PRIO_PROCESS, pid, nice)
        except ProcessLookupError:
            continue  # it ended meanwhile
        except PermissionError as error:
            return f"process {pid} cannot be reniced: {error.strerror}"
    return ""
