"""The keys of one container are no other container's (keyrings(7))."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.jvm import run_as
from agent.launcher import syscalls
from agent.launcher.account import look_up
from tests.unit.agent.launcher.launcher_bed import ME, TIMEOUT_S, Client, end, launcher_pid

#: The script that python3 runs in the containers. glibc has neither keyctl(2) nor add_key(2).
KEYS = f"""
import ctypes, errno, sys, time
call = ctypes.CDLL(None, use_errno=True).syscall
call.restype = ctypes.c_long
KEYCTL, ADD_KEY = {syscalls._SYS_KEYCTL}, {syscalls._SYS_KEYCTL - 2}
REVOKE, SEARCH, SESSION_KEYRING = 3, 10, -3
def said(result):
    print(errno.errorcode[ctypes.get_errno()] if result < 0 else result, flush=True)
"""
ADD = f'{KEYS}said(call(ADD_KEY, b"user", b"penstock-test", b"secret", 6, SESSION_KEYRING)); time.sleep(1000)'
FIND = f'{KEYS}said(call(KEYCTL, SEARCH, SESSION_KEYRING, b"user", b"penstock-test", 0))'
USE = f"{KEYS}said(call(KEYCTL, REVOKE, int(sys.argv[1])))"
USERS = ("daemon", "nobody") if os.geteuid() == 0 else (ME, ME)


async def find_the_others_key(runtime: Path) -> tuple[str, str, str]:
    """Start a container that adds a key; return the key's number, and the rights of a second container on it."""
    client = await Client.connect(runtime)
    pid = launcher_pid(runtime)
    reading, writing = os.pipe()
    try:
        await client.start("adds", "python3", "-ISc", ADD, user=USERS[0], stdout=writing)
        os.close(writing)
        async with asyncio.timeout(TIMEOUT_S):
            key = (await asyncio.to_thread(os.read, reading, 100)).decode().strip()
        found = await client.output("python3", "-ISc", FIND, user=USERS[1])
        used = await client.output("python3", "-ISc", USE, key, user=USERS[1])
        return key, found.strip(), used.strip()
    finally:
        os.close(reading)
        await client.launcher.close()
        end(pid)


def test_a_container_neither_finds_nor_revokes_a_key_of_another(tmp_path: Path) -> None:
    # A session keyring is a thread's: the thread that starts the launcher has one, as a login has.
    with ThreadPoolExecutor(1) as login:
        login.submit(syscalls.join_new_session_keyring).result()
        key, found, used = login.submit(asyncio.run, find_the_others_key(tmp_path)).result()
    if key == "ENOSYS":
        pytest.skip("this host's kernel has no keyrings")
    assert found == "ENOKEY"
    if os.geteuid() == 0:  # a user may do anything with keys of its own
        assert used == "EACCES"


def test_a_command_of_the_agent_that_runs_as_a_user_finds_no_key_of_the_agent() -> None:
    def look() -> tuple[int, str]:
        syscalls.join_new_session_keyring()
        add_key, session_keyring = syscalls._SYS_KEYCTL - 2, ctypes.c_long(-3)
        key = syscalls._syscall(add_key, b"user", b"penstock-test", b"secret", ctypes.c_long(6), session_keyring)
        return key, run_as(look_up(USERS[0]), ("python3", "-ISc", FIND))

    with ThreadPoolExecutor(1) as login:
        key, found = login.submit(look).result()
    if key < 0:
        pytest.skip("this host's kernel has no keyrings")
    assert found.strip() == "ENOKEY"


@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
def test_without_keyrings_it_goes_on(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    monkeypatch.setattr(syscalls, "_syscall", lambda *_: -1)
    monkeypatch.setattr(ctypes, "get_errno", lambda: getattr(errno, error))
    syscalls.join_new_session_keyring()


@pytest.mark.parametrize("unit", ["agent", "containers", "master"])
def test_the_units_have_keyrings_of_their_own(unit: str) -> None:
    text = (Path(__file__).parents[4] / "systemd" / f"penstock-{unit}.service").read_text(encoding="utf-8")
    assert "KeyringMode=private" in text.splitlines()
