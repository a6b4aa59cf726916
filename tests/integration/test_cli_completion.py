"""The output of `penstock completion` in real shells: the words that TAB offers."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.cli.completion import script
from penstock.cli.main import names
from tests import warm_commands
from tests.fakes.agent import FakeAgent

COMMAND = [warm_commands.penstock()]
#: Press TAB behind the given words; print the offered ones.
BASH_TAB = """
source "$1"; shift
set -- $(complete -p penstock | sed -n 's/.* -F \\([^ ]*\\).*/\\1/p') "$@"
handler=$1; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
"$handler" penstock "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bash, zsh and fish's, and a `penstock` to be found on the path."""
    here = tmp_path_factory.mktemp("completion")
    done = subprocess.run([*COMMAND, "completion", "bash"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    (here / "bash").write_text(done.stdout, encoding="utf-8")
    for shell in ("zsh", "fish"):
        (here / shell).write_text(script(shell), encoding="utf-8")
    command = here / "penstock"
    command.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return here


def offered(scripts: Path, *words: str, socket: Path | None = None) -> list[str]:
    """Return the words that bash offers behind `penstock WORDS`, the last of which is being typed."""
    around = {"PATH": f"{scripts}:{os.environ['PATH']}", "PENSTOCK_SOCKET": str(socket or scripts / "nobody.sock")}
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH_TAB, "bash", str(scripts / "bash"), "penstock", *words],
        capture_output=True, text=True, check=True, timeout=60, env=around, cwd=scripts,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_offers_every_command(scripts: Path) -> None:
    assert set(offered(scripts, "")) == set(names())
    assert offered(scripts, "reserv") == ["reserve", "reservations"]


def test_bash_offers_options_and_their_values(scripts: Path) -> None:
    assert {"--memory", "--memory-policy", "--cpu", "--detach"} <= set(offered(scripts, "run", "--"))
    assert offered(scripts, "run", "--memory-p") == ["--memory-policy"]
    assert offered(scripts, "run", "--memory-policy", "") == ["kill", "throttle"]
    assert {"--config", "--check-config"} <= set(offered(scripts, "agent", "--c"))
    assert "--name" not in offered(scripts, "status", "--")


def test_bash_completes_a_word_typed_in_a_terminal(scripts: Path) -> None:
    """With readline and the key itself: TAB behind an option that is the only one of its kind, then behind a choice."""
    parent, child = pty.openpty()
    typed = f"source {scripts}/bash; echo ready\npenstock run --memory-p\tthr\t-- true\x01: \nexit\n"
    around = {"PATH": f"{scripts}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ ", "INPUTRC": "/dev/null"}
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"], stdin=child, stdout=child, stderr=child, env=around, cwd=scripts,
        start_new_session=True,
    )  # fmt: skip
    os.close(child)
    seen = b""
    try:
        for line in typed.splitlines(keepends=True):
            os.write(parent, line.encode())
        while b"--memory-policy throttle -- true" not in seen:
            assert select.select([parent], [], [], 60)[0], seen.decode("utf-8", "replace")
            seen += os.read(parent, 65536)
    finally:
        shell.kill()
        shell.wait(60)
        os.close(parent)


def test_bash_offers_commands_within_commands(scripts: Path) -> None:
    assert {"init", "issue", "renew", "show"} <= set(offered(scripts, "ca", ""))
    assert {"--master", "--also"} <= set(offered(scripts, "ca", "issue", "--"))
    assert "--also" not in offered(scripts, "ca", "renew", "--")


def test_bash_offers_files(scripts: Path) -> None:
    assert offered(scripts, "submit", "pens") == ["penstock"]


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[FakeAgent]:
    fake = FakeAgent(tmp_path)
    fake.document = {
        "containers": [{"container": "c-run"}, {"container": "c-over", "ended": {"by": "exit"}}],
        "jobs": [{"job": "j-here"}],
    }
    fake.cluster = {"nodes": {"alpha": {}, "beta": {}}, "jobs": {"j-far": {}, "j-here": {}}}
    await fake.start()
    yield fake
    await fake.stop()


async def test_names_are_asked_of_the_agent(scripts: Path, agent: FakeAgent) -> None:
    import asyncio

    async def tab(*words: str) -> list[str]:
        return await asyncio.to_thread(offered, scripts, *words, socket=agent.socket)

    assert await tab("kill", "c") == ["c-run"]
    assert await tab("submit", "--node", "") == ["alpha", "beta"]
    for what, expected in (("jobs", "j-far\nj-here\n"), ("nodes", "alpha\nbeta\n"), ("containers", "c-run\n")):
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "completion", "--names", what, stdout=subprocess.PIPE,
            env={**os.environ, "PENSTOCK_SOCKET": str(agent.socket)},
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        assert (process.returncode, out.decode()) == (0, expected)


def test_without_an_agent_there_is_nothing_to_offer_and_nothing_printed(scripts: Path) -> None:
    assert offered(scripts, "kill", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_read_it(scripts: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    done = subprocess.run([shell, "-n", str(scripts / shell)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_command(scripts: Path, shell: str) -> None:
    text = (scripts / shell).read_text(encoding="utf-8")
    assert {name for name in names() if name not in text} == set()
    assert text.startswith("#compdef penstock" if shell == "zsh" else "#")


def test_no_shell_is_one_line() -> None:
    done = subprocess.run([*COMMAND, "completion"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, "penstock completion: name a shell: one of bash, zsh, fish\n")
