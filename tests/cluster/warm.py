"""Runs in a machine, with Debian's own Python: has imported what Ansible's modules are made of, and forks for each.

An emulated processor takes ten seconds and more to import and compile that for every single step of a playbook. What
Ansible calls for its interpreter is the program of ``warm.c``; it hands over what it was called with, and its files.
"""

from __future__ import annotations

import importlib
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path
from types import ModuleType

_SOCKET = "\0penstock-test-python"
_IMPORTED = (
    "basic", "common.file", "common.respawn", "facts.system.chroot", "service", "urls",
    "_internal._ansiballz._loader",
    "_internal._json._profiles._module_legacy_c2m", "_internal._json._profiles._module_legacy_m2c",
)  # fmt: skip
_MOST_BYTES = 1 << 20


def main() -> None:
    """Returns when it answers; what answers is a child in a session of its own."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    for name in _IMPORTED:
        importlib.import_module(f"ansible.module_utils.{name}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(_SOCKET)
    listener.listen(16)
    if os.fork():
        return
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            _answer(connection)
        connection.close()


def _answer(connection: socket.socket) -> None:
    """As Python would: be who called, run what was to be run, and tell the status."""
    message, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
    umask, directory, count, *words = message.decode(errors="surrogateescape").split("\0")[:-1]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(dict(word.split("=", 1) for word in words[int(count) :]))
    os.chdir(directory)
    os.umask(int(umask, 8))
    status = _run(words[1 : int(count)])
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(bytes([status & 255]))
    os._exit(0)


def _run(arguments: list[str]) -> int:
    """A file, ``-c`` or what comes from standard input; its exit status."""
    try:
        if not arguments:
            _execute(sys.stdin.read(), ["-"])
        elif arguments[0] == "-c":
            _execute(arguments[1], ["-c", *arguments[2:]])
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the root of what was called
        traceback.print_exc()
        return 1
    return 0


def _execute(code: str, arguments: list[str]) -> None:
    sys.argv = arguments
    sys.modules["__main__"] = module = ModuleType("__main__")
    exec(compile(code, "<stdin>", "exec"), module.__dict__)


main()
