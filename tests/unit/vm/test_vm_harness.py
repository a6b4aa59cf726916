"""The parts of the virtual machine's harness that can be tested without booting one."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vm import __main__ as vm
from tests.vm import host, image, remote, user_mode_kernel
from tests.vm.__main__ import UNAVAILABLE, _drives_of, _parser, main, require_user_mode
from tests.vm.checkout import _commands, _files
from tests.vm.image import ROOT, requirements
from tests.vm.machine import Machine
from tests.vm.user_mode import nice_of_session


def test_requirements_are_those_of_pyproject_with_its_own_extras_expanded() -> None:
    names = {requirement.partition(">")[0] for requirement in requirements()}
    assert {"msgpack", "psutil", "numpy", "pytest"} <= names
    assert not any(name.startswith("penstock") for name in names)


def test_the_checkout_has_the_files_that_git_tracks_or_would_track() -> None:
    files = _files()
    assert {"pyproject.toml", "tests/unit/vm/test_vm_harness.py"} <= set(files)
    assert not any(name.startswith((".venv/", ".git/")) or "__pycache__" in name for name in files)


def test_additional_disks_are_named_by_model(capsys: pytest.CaptureFixture[str]) -> None:
    parse = _parser().parse_args
    assert parse(["run", "--", "true"]).drives == ()
    assert _drives_of(parse(["test"])) == ("nvme", "virtio", "slow")
    assert _drives_of(parse(["test", "--user-mode"])) == ("ubd", "ubd", "slow")
    assert parse(["test", "--drives", "nvme,virtio"]).drives == ("nvme", "virtio")
    assert parse(["test", "--drives", ""]).drives == ()
    with pytest.raises(SystemExit):
        parse(["run", "--drives", "floppy", "--", "true"])
    assert "'floppy' is none of nvme, slow, ubd, virtio" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--user-mode", "--drives", "nvme"], "a machine in user mode has slow, ubd"),
        (["--drives", "ubd"], "a machine under QEMU has nvme, slow, virtio"),
    ],
)
def test_a_machine_has_the_drives_of_its_kind(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", *options, "--", "true"])
    assert caught.value.code == 2
    assert f"--drives: {said}" in capsys.readouterr().err


def test_the_lacks_for_user_mode_are_reported_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never() -> None:
        raise AssertionError("nothing is built for a machine that cannot be had")

    monkeypatch.setattr(vm, "require_tools", lambda tools: None)
    monkeypatch.setattr(vm, "ensure_image", never)
    monkeypatch.setattr(vm, "find", lambda program: "false")
    with pytest.raises(host.UnavailableError, match="no network namespace"):
        require_user_mode()
    monkeypatch.setattr(vm.signal, "signal", lambda number, handler: None)
    assert main(["run", "--user-mode", "--", "true"]) == UNAVAILABLE
    assert "no virtual machine on this host: user mode: " in capsys.readouterr().err


def test_http_ports_are_forwarded_from_loopback_to_loopback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "ssh").write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/called\ncase "$*" in *:7422*) echo "port taken" >&2; exit 255;; esac\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    machine = Machine()
    machine.directory = tmp_path
    ports = vm.forward(machine)
    assert list(ports) == [7421], "one that fails is told, and not in the list"
    told = capsys.readouterr().err
    assert f"http://127.0.0.1:7421 in the machine is http://127.0.0.1:{ports[7421]} here" in told
    assert "port 7422 of the machine is not forwarded: port taken" in told
    first = (tmp_path / "called").read_text().splitlines()[0]
    assert first == f"-F {tmp_path}/ssh_config -O forward -L 127.0.0.1:{ports[7421]}:127.0.0.1:7421 vm"


def test_commands_are_read_from_the_wheels_entry_points() -> None:
    text = "[console_scripts]\npenstock = penstock.cli.main:main\n\n[penstock.commands]\nagent = agent.command:main\n"
    assert _commands(text) == {"penstock": "penstock.cli.main:main"}


def test_a_child_dies_with_the_harness_even_when_that_is_killed() -> None:
    code = (
        "import subprocess; from tests.vm.host import dying_with_us; "
        "subprocess.run(dying_with_us(['sh', '-c', 'echo up; exec sleep 600']))"
    )
    # Both hold the pipe's other end for as long as they live.
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, bufsize=0) as harness:
        assert harness.stdout is not None
        try:
            assert harness.stdout.readline() == b"up\n"
        finally:
            harness.kill()
        ready, _, _ = select.select([harness.stdout], [], [], 30)
        assert ready, "the grandchild outlived its parent"
        assert harness.stdout.read() == b""


def test_a_missing_program_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_PATH", "/nonexistent")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(
        host.UnavailableError, match=r"as root: apt-get install .*mmdebstrap.*qemu-system-x86"
    ) as caught:
        host.require_tools({**host.TOOLS, **host.QEMU_TOOLS})
    assert "\n" not in str(caught.value)


def test_a_machine_in_user_mode_is_had_without_qemu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in ("ip", "mke2fs", "mmdebstrap", "newuidmap", "nsenter", "setpriv", "ssh", "taskset", "unshare"):
        (programs / program).write_text("#!/bin/sh\n")
        (programs / program).chmod(0o755)
    monkeypatch.setattr(host, "_PATH", str(programs))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PENSTOCK_VM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(image, "_build", lambda made: made.directory.mkdir())
    monkeypatch.setattr(vm, "ensure_kernel", lambda: "linux")
    monkeypatch.setattr(vm.signal, "signal", lambda number, handler: None)
    assert main(["build", "--user-mode"]) == 0, capsys.readouterr().err
    assert main(["build"]) == UNAVAILABLE
    missing = "qemu-system-x86_64 missing; as root: apt-get install qemu-system-x86\n"
    assert capsys.readouterr().err.endswith(f"no virtual machine on this host: {missing}")


def test_a_program_of_a_machine_in_user_mode_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_PATH", "/nonexistent")
    with pytest.raises(host.UnavailableError, match=r"taskset is missing: apt-get install util-linux"):
        host.find("taskset")


def test_a_kernel_that_lacks_a_configured_option_is_refused(tmp_path: Path) -> None:
    wanted = [line for line in user_mode_kernel._CONFIG.read_text().splitlines() if line.startswith("CONFIG_")]
    made = tmp_path / ".config"
    made.write_text("\n".join(wanted))
    user_mode_kernel._require_config(made)
    made.write_text("\n".join(line for line in wanted if line != "CONFIG_PSI=y"))
    with pytest.raises(host.UnavailableError, match=r"cannot be configured with CONFIG_PSI=y$"):
        user_mode_kernel._require_config(made)


@pytest.mark.parametrize(("said", "nice"), [("/autogroup-25 nice -5\n", -5), ("/autogroup-1 nice 10\n", 10), ("", 0)])
def test_the_nice_value_of_a_session_is_read_and_that_of_init_s_is_none(said: str, nice: int) -> None:
    assert nice_of_session(said) == nice


class Panicked(Machine):
    """A machine whose kernel has panicked: ssh goes on waiting for it."""

    def ssh_command(self, command: str) -> list[str]:
        return ["sleep", "infinity"]

    def console(self) -> str:
        return "Kernel panic - not syncing"

    def has_ended(self) -> bool:
        return True


def test_a_command_in_a_machine_that_ended_ends_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remote, "_LOOK_S", 0.01)
    assert Panicked().stream("true") == 1
    assert "Kernel panic" in "".join(capsys.readouterr())
