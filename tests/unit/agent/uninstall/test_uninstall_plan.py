"""The files that are removed and their order, on hosts of the test's own: directories represent cgroups."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from agent.config import AgentConfig
from agent.uninstall import command, plan
from agent.uninstall.plan import Host, Refused, Removal, removals
from penstock.cli.errors import CommandError

UNIT = "penstock.slice/penstock-containers.service"


class Bed:
    """A host: a hierarchy, links, an agent's directories."""

    def __init__(self, root: Path) -> None:
        self.mount = root / "cgroup"
        self.mount.mkdir()
        self.run, self.state = root / "run", root / "state"
        self.links: dict[str, int] = {}
        self.config = AgentConfig(runtime_dir=str(self.run), state_dir=str(self.state))

    def tree(self, name: str, *containers: str) -> Path:
        for part in ("holder", *(f"containers/{container}" for container in containers)):
            (self.mount / name / part).mkdir(parents=True)
        return self.mount / name

    @property
    def host(self) -> Host:
        return Host(
            lambda: self.mount,
            lambda: sorted(self.links.items()),
            lambda index: self.links.pop(next(name for name, each in self.links.items() if each == index)),
        )

    def find(self, *, kill: bool = False, purge: bool = False) -> list[Removal]:
        return list(removals(self.config, kill=kill, purge=purge, host=self.host))

    def remove(self, **how: bool) -> list[str]:
        found = []
        for one in removals(self.config, kill=how.get("kill", False), purge=how.get("purge", False), host=self.host):
            one.remove()
            found.append(one.what)
        return found


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_a_host_where_there_is_nothing(bed: Bed) -> None:
    assert bed.find(purge=True) == []
    (bed.mount / "penstock-of-somebody/else").mkdir(parents=True)
    (bed.mount / "penstock-empty").mkdir()
    assert bed.find() == []


def test_a_socket_elsewhere_goes_with_the_files_beside_it(bed: Bed, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    bed.config = AgentConfig(
        runtime_dir=str(bed.run), state_dir=str(bed.state), socket=str(elsewhere / "penstock.sock")
    )
    for name in ("penstock.sock", "penstock.sock.lock", "stdio.sock", "of-somebody-else"):
        (elsewhere / name).touch()
    bed.remove()
    assert [file.name for file in elsewhere.iterdir()] == ["of-somebody-else"]


def test_all_of_it_goes_once(bed: Bed) -> None:
    tree, other = bed.tree("penstock-0123", "c-1", "c-2/below"), bed.tree("penstock-4567")
    bed.links["eth0"] = 2
    bed.run.mkdir()
    for name in ("agent.sock", "launcher.log", "of-somebody-else"):
        (bed.run / name).touch()
    bed.state.mkdir()
    (bed.state / "journal").touch()
    assert bed.remove() == [
        "traffic control on eth0", f"cgroups in {tree}", f"cgroups in {other}",
        f"{bed.run}/agent.sock", f"{bed.run}/launcher.log",
    ]  # fmt: skip
    assert bed.links == {} and not tree.exists() and not other.exists()
    assert [file.name for file in bed.run.iterdir()] == ["of-somebody-else"]
    assert (bed.state / "journal").exists()
    assert bed.remove() == []
    assert bed.remove(purge=True) == [f"{bed.state}, with journal and outputs"]
    assert not bed.state.exists() and bed.remove(purge=True) == []


def test_ends_that_no_agent_has_recorded_go_with_the_journal_alone(bed: Bed) -> None:
    ends = bed.run / "exits"
    ends.mkdir(parents=True)
    (ends / "c-1").touch()
    assert bed.remove() == []
    assert bed.remove(purge=True) == [f"{ends}, with how containers ended"]
    ends.mkdir()
    assert bed.remove() == [f"{ends}, with how containers ended"] and not ends.exists()


def test_the_cgroup_of_a_unit_stays_with_systemd(bed: Bed) -> None:
    tree = bed.tree(UNIT, "c-1")
    assert bed.remove() == [f"cgroups in {tree}"]
    assert tree.is_dir() and list(tree.iterdir()) == []
    assert bed.remove() == []


def test_a_configured_tree_is_the_only_one(bed: Bed) -> None:
    tree, other = bed.tree("mine", "c-1"), bed.tree("penstock-4567")
    bed.config = AgentConfig(runtime_dir=str(bed.run), state_dir=str(bed.state), cgroup_root=str(tree))
    assert bed.remove() == [f"cgroups in {tree}"]
    assert other.exists()


def test_containers_that_run_are_a_reason_to_refuse(bed: Bed) -> None:
    tree = bed.tree("penstock-0123", "c-1", "c-2")
    (tree / "containers/c-2/cgroup.events").write_text("populated 1\nfrozen 0\n")
    bed.links["eth0"] = 2
    with pytest.raises(Refused, match=r"^containers run \(c-2\): end them first, or kill them with --kill$"):
        bed.remove()
    assert bed.links and tree.exists()
    assert bed.find(kill=True)[0].what == "container c-2 and its processes"


def test_another_agents_launcher_is_a_reason_to_refuse(bed: Bed) -> None:
    tree = bed.tree("penstock-0123")
    (tree / "holder/cgroup.procs").write_text("4711\n")
    with pytest.raises(Refused, match=r"another agent's launcher \(process 4711\) holds"):
        bed.remove()
    assert bed.find(kill=True)[0].what == "another agent's launcher (process 4711)"


def test_another_agents_launcher_is_named_before_the_containers_that_would_be_killed_with_it(bed: Bed) -> None:
    tree = bed.tree("penstock-0123", "c-1")
    (tree / "containers/c-1/cgroup.events").write_text("populated 1\n")
    (tree / "holder/cgroup.procs").write_text("4711\n")
    with pytest.raises(Refused, match=r"another agent's launcher .*; --kill ends it with its containers$"):
        bed.remove()


def test_an_agent_that_answers_is_a_reason_to_refuse_any_request(bed: Bed) -> None:
    bed.run.mkdir()
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(bed.run / "agent.sock"))
        agent.listen()
        with pytest.raises(Refused, match=r"an agent answers at .*: stop it first \(Ctrl-C in `penstock up`"):
            bed.remove(kill=True, purge=True)


def test_an_empty_state_directory_is_purged(bed: Bed) -> None:
    """The service manager makes it for an agent that may never have started."""
    bed.state.mkdir()
    bed.remove(purge=True)
    assert not bed.state.exists()


def test_a_directory_that_is_no_state_is_not_purged(bed: Bed) -> None:
    bed.state.mkdir()
    (bed.state / "precious").touch()
    with pytest.raises(Refused, match=r"--purge: .* does not look like an agent's state directory"):
        bed.remove(purge=True)
    assert bed.remove() == []


Run = Callable[..., int]


@pytest.fixture
def uninstall(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(command, "Host", lambda: bed.host)
    values = {"runtime_dir": bed.run, "state_dir": bed.state}
    settings = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    return lambda *options: command.main([*options, *settings])


def test_a_dry_run_reports_and_does_nothing(bed: Bed, uninstall: Run, capsys: pytest.CaptureFixture[str]) -> None:
    tree = bed.tree("penstock-0123", "c-1")
    assert uninstall("--dry-run") == 0
    assert capsys.readouterr().out == f"would remove cgroups in {tree}\n" and tree.exists()
    assert uninstall() == 0
    assert capsys.readouterr().out == f"removed cgroups in {tree}\n" and not tree.exists()
    assert uninstall() == 0
    assert capsys.readouterr().out == "nothing of Penstock is set up here\n"


def test_a_dry_run_says_that_running_work_needs_kill(
    bed: Bed, uninstall: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (bed.tree("penstock-0123", "c-1") / "containers/c-1/cgroup.events").write_text("populated 1\n")
    assert uninstall("--dry-run") == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("would remove container c-1 and its processes\n")
    assert printed.err.endswith(" run: without --kill nothing would be removed\n") and printed.err.count("\n") == 1
    assert uninstall("--dry-run", "--kill") == 0
    assert capsys.readouterr().err == ""


def test_files_that_cannot_go_are_reported_and_the_rest_goes(
    bed: Bed, uninstall: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    tree, other = bed.tree("penstock-0123"), bed.tree("penstock-4567")
    (tree / "holder/stuck").touch()  # rmdir: ENOTEMPTY, as EBUSY of a cgroup
    assert uninstall() == 1
    printed = capsys.readouterr()
    assert printed.out == f"removed cgroups in {other}\n"
    assert printed.err == f"penstock uninstall: cgroups in {tree}: Directory not empty\n"


def test_a_refusal_is_one_line(bed: Bed, uninstall: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (bed.tree("penstock-0123", "c-1") / "containers/c-1/cgroup.events").write_text("populated 1\n")
    assert uninstall() == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("penstock uninstall: containers run (c-1)")


@pytest.mark.parametrize("options", [("--set", "nonsense=1"), ("--config", "/no/such/file")])
def test_bad_input(uninstall: Run, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]) -> None:
    assert uninstall(*options) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_invalid_option_is_an_error_of_the_command(uninstall: Run) -> None:
    with pytest.raises(CommandError, match="--set: 'nothing' is not KEY=VALUE"):
        uninstall("--set", "nothing")


def test_a_refusal_of_the_kernel_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise NetlinkError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(plan, "with_htb", refuse)
    with pytest.raises(OSError, match=r"link 2: .* run as root"):
        Host().uninstall_link(2)


def test_a_link_that_keeps_its_qdisc(bed: Bed, uninstall: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise PermissionError(errno.EPERM, "run as root")

    bed.links["eth0"] = 2
    monkeypatch.setattr(command, "Host", lambda: Host(lambda: bed.mount, lambda: [("eth0", 2)], refuse))
    assert uninstall() == 1
