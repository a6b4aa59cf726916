"""The fake tree fulfils the contract; so does the host's, as far as it can (tests/kernel runs all of it)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from agent.cgroup_root import cgroup2_mount

pytest.register_assert_rewrite(
    "tests.contract.cgroup_suite", "tests.contract.cgroup_kernel_suite", "tests.contract.cgroup_limits_suite",
    "tests.contract.cgroup_groups_suite",
)  # fmt: skip

from tests.contract.cgroup_beds import Bed, fake_bed, real_bed  # noqa: E402
from tests.contract.cgroup_groups_suite import GroupsContract  # noqa: E402
from tests.contract.cgroup_kernel_suite import KernelContract  # noqa: E402
from tests.contract.cgroup_limits_suite import ControllersContract  # noqa: E402
from tests.contract.cgroup_suite import ProcessesContract  # noqa: E402


class TestFake(ControllersContract, GroupsContract, ProcessesContract):
    """Everything, in memory."""

    @pytest.fixture
    def bed(self) -> Iterator[Bed]:
        bed = fake_bed()
        yield bed
        bed.close()


_mount = cgroup2_mount()


@pytest.mark.skipif(
    _mount is None or not os.access(_mount, os.W_OK),
    reason="elsewhere: needs a cgroup2 mount that can be written to; the virtual machine has one",
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes cgroups anywhere")
class TestHost(ProcessesContract, KernelContract):
    """The host's kernel, with any set of controllers for version 2."""

    @pytest.fixture
    def bed(self) -> Iterator[Bed]:
        bed = real_bed()
        yield bed
        bed.close()
