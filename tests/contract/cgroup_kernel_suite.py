"""The behaviour of a kernel, with or without controllers: forks, threads, notices, pressure.

No fake claims any of it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
from contextlib import closing
from pathlib import Path

import pytest

from agent.cgroups.pressure import PressureTrigger
from tests.contract.cgroup_beds import Bed, refused, wait_for
from tests.contract.events_watch import EventsWatch

SPIN = "import os; os.sched_setaffinity(0, [0])\nwhile True: pass"
#: Leave the parent, its session and its process group, and print the number.
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setpgid(0, 0)
        print(os.getpid(), flush=True)
        time.sleep(999)
    os._exit(0)
os.wait()
"""
#: A process tree that keeps forking, 200 processes at the most.
STORM = """
import os, sys, time
for generation in range(200):
    if generation == 20:
        print("on", flush=True)
    if os.fork() == 0:
        time.sleep(999)
print("all", flush=True)
time.sleep(999)
"""
#: A window that the kernel accepts from any user.
WINDOW_US = 2_000_000


class KernelContract:
    """Subclassed with a ``bed`` on a kernel."""

    def test_children_are_born_in_their_parents_cgroup(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        process = bed.start(cgroup, "import os\nprint(os.fork(), flush=True)\nimport time; time.sleep(999)")
        assert process.stdout is not None
        # the parent prints the child's number, the child prints 0
        told = {int(process.stdout.readline()) for _ in range(2)}
        assert set(cgroup.pids()) == {process.pid, *(told - {0})}

    def test_killing_reaches_a_process_that_left_parent_session_and_group(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        process = bed.start(cgroup, DAEMON)
        assert process.stdout is not None
        daemon = int(process.stdout.readline())
        process.wait(60)
        assert cgroup.pids() == [daemon]
        pidfd = os.pidfd_open(daemon)
        cgroup.kill()
        assert select.select([pidfd], [], [], 60)[0]
        os.close(pidfd)
        wait_for(cgroup, "cgroup.events", populated=0)
        assert cgroup.remove()

    @pytest.mark.parametrize("frozen", [False, True])
    def test_killing_ends_a_process_that_forks_meanwhile(self, bed: Bed, frozen: bool) -> None:
        cgroup = bed.tree.create("a")
        process = bed.start(cgroup, STORM)
        assert process.stdout is not None and process.stdout.readline() == "on\n"
        if frozen:
            cgroup.freeze(True)
            wait_for(cgroup, "cgroup.events", frozen=1)
        assert len(cgroup.pids()) > 20
        cgroup.kill()
        assert process.wait(60) == -signal.SIGKILL
        wait_for(cgroup, "cgroup.events", populated=0)
        assert cgroup.pids() == [] and cgroup.remove()

    def test_threads_are_of_their_process(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        code = (
            "import threading, time\nfor _ in range(5): threading.Thread(target=time.sleep, args=[999]).start()\n"
            "print('on', flush=True)"
        )
        process = bed.start(cgroup, code)
        assert process.stdout is not None and process.stdout.readline() == "on\n"
        assert cgroup.pids() == [process.pid]
        sample = cgroup.sample()
        assert sample is not None and sample.pids == (6 if "pids" in bed.tree.controllers else 1)  # tasks, or processes
        cgroup.kill()
        assert process.wait(60) == -signal.SIGKILL

    def test_a_frozen_process_uses_no_processor_and_handles_no_signal(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        code = (
            "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(7))\nprint('on', flush=True)\n"
            "while True: pass"
        )
        process = bed.start(cgroup, code)
        assert process.stdout is not None and process.stdout.readline() == "on\n"
        cgroup.freeze(True)
        wait_for(cgroup, "cgroup.events", frozen=1)
        process.send_signal(signal.SIGTERM)
        before = cgroup.sample()
        assert select.select([process.stdout], [], [], 0.2)[0] == []
        after = cgroup.sample()
        assert process.poll() is None and before is not None and after is not None
        assert after.cpu_usage_s - before.cpu_usage_s < 0.05  # of 0.2; in user mode the kernel counts ticks of 0.01
        cgroup.freeze(False)
        assert process.wait(60) == 7

    def test_a_signal_without_a_handler_ends_a_frozen_process(self, bed: Bed) -> None:
        """Not SIGKILL alone: every signal that would end it (kernel/signal.c, complete_signal)."""
        cgroup = bed.tree.create("a")
        process = bed.enter(cgroup)
        cgroup.freeze(True)
        wait_for(cgroup, "cgroup.events", frozen=1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM

    def test_events_are_notified(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        with EventsWatch(cgroup.path / "cgroup.events") as watch:
            assert watch.changed() == {"populated": 0, "frozen": 0}
            process = bed.enter(cgroup)
            assert select.select([watch], [], [], 60)[0]
            assert watch.changed() == {"populated": 1, "frozen": 0}
            assert not select.select([watch], [], [], 0)[0]  # the notification has been read
            process.kill()
            process.wait(60)
            assert select.select([watch], [], [], 60)[0]
            assert watch.changed() == {"populated": 0, "frozen": 0}
            assert cgroup.remove()
            assert select.select([watch], [], [], 60)[0]
            assert watch.changed() is None

    async def test_an_event_loop_is_notified_of_pressure(self, bed: Bed) -> None:
        """Three at one processor; not to be lost, though the loop's own looking takes the event from the kernel."""
        cgroup = bed.tree.create("a")
        for _ in range(3):
            bed.start(cgroup, SPIN)
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        with closing(PressureTrigger(cgroup.path / "cpu.pressure", 50_000, WINDOW_US)) as trigger:
            assert trigger.compromise is None
            loop.add_reader(trigger, told.set)
            for _ in range(2):
                await asyncio.wait_for(told.wait(), 60)
                assert trigger.fired() is True
                told.clear()
            cgroup.kill()
            for process in bed.processes:
                process.wait(60)
            assert cgroup.remove()
            while trigger.fired():
                told.clear()
                await asyncio.wait_for(told.wait(), 60)
            loop.remove_reader(trigger)

    def test_a_short_window_is_set_or_the_compromise_is_reported(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        with closing(PressureTrigger(cgroup.path / "memory.pressure", 50_000, 500_000)) as trigger:
            got = (trigger.stall_us, trigger.window_us)
            if trigger.compromise is None:
                assert got == (50_000, 500_000)
            else:
                assert got == (200_000, 2_000_000) and "CAP_SYS_RESOURCE" in trigger.compromise.remedy

    @pytest.mark.parametrize(("stall_us", "window_us"), [(0, WINDOW_US), (WINDOW_US + 1, WINDOW_US), (1, 20_000_000)])
    def test_triggers_that_the_kernel_does_not_take(self, bed: Bed, stall_us: int, window_us: int) -> None:
        cgroup = bed.tree.create("a")
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        with refused(errno.EINVAL):
            PressureTrigger(cgroup.path / "cpu.pressure", stall_us, window_us)
        with pytest.raises(FileNotFoundError):
            PressureTrigger(cgroup.path / "no.pressure", 1, WINDOW_US)
        assert len(list(Path("/proc/self/fd").iterdir())) == descriptors

    def test_a_descriptor_of_a_removed_cgroup(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        door = cgroup.open_procs()
        reader = os.open(cgroup.path / "cgroup.events", os.O_RDONLY)
        assert cgroup.remove()
        for act in (lambda: os.write(door, b"0"), lambda: os.pread(reader, 100, 0)):
            with refused(errno.ENODEV):
                act()
        os.close(door)
        os.close(reader)
