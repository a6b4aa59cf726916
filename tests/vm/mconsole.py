"""Ask the kernel of a machine in user mode which tasks are blocked, and where, when nothing else in it answers.

The protocol is that of user-mode Linux (arch/um/drivers/mconsole.h): one datagram with a command, answered by some.
"""

from __future__ import annotations

import socket
import struct
import tempfile
from pathlib import Path

_REQUEST = struct.Struct("III512s")  # magic, version, length, command
_REPLY = struct.Struct("III")  # error, whether more follows, length of the text behind it, which ends with a 0
_MOST_BYTES = 1024
_MAGIC, _VERSION = 0xCAFEBABE, 2
_TIMEOUT_S = 20.0
#: Without the first command ``quiet`` on the kernel's command line hides the output of the second one.
_BLOCKED = ("sysrq 9", "sysrq w")


def blocked_tasks(directory: Path) -> str:
    """Return the tasks in uninterruptible sleep, each with its call trace; ``directory`` is the machine's ``uml_dir``.

    Where the kernel does not answer within some seconds, the text has that.
    """
    sockets = sorted(directory.glob("*/mconsole"))
    if not sockets:
        return f"no kernel listens in {directory}"
    try:
        return [ask(sockets[0], command) for command in _BLOCKED][-1]
    except OSError as error:  # TimeoutError, too: then the fault is not in the kernel's disk or network
        return f"the kernel does not answer: {type(error).__name__}: {error}"


def ask(kernel: Path, command: str) -> str:
    """Send a command to a kernel's socket; return its answer.

    Raises:
        TimeoutError: no answer within 20 s.
        OSError: no process listens.
    """
    data = command.encode("ascii")
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(f"{name}/answers")  # without an address it could not answer
        ours.settimeout(_TIMEOUT_S)
        ours.sendto(_REQUEST.pack(_MAGIC, _VERSION, len(data), data), str(kernel))
        answer, more = b"", True
        while more:
            reply = ours.recv(_MOST_BYTES)
            _, more, length = _REPLY.unpack_from(reply)
            answer += reply[_REPLY.size : _REPLY.size + length].rstrip(b"\0")
    return answer.decode(errors="replace")
