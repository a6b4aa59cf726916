"""The contract of tests/contract on a kernel with every controller: the fake tree's properties are the kernel's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite(
    "tests.contract.cgroup_suite", "tests.contract.cgroup_kernel_suite", "tests.contract.cgroup_limits_suite",
    "tests.contract.cgroup_groups_suite",
)  # fmt: skip

from tests.contract.cgroup_beds import Bed, real_bed  # noqa: E402
from tests.contract.cgroup_groups_suite import GroupsContract  # noqa: E402
from tests.contract.cgroup_kernel_suite import KernelContract  # noqa: E402
from tests.contract.cgroup_limits_suite import ControllersContract  # noqa: E402
from tests.contract.cgroup_suite import ProcessesContract  # noqa: E402


class TestKernelControllers(ControllersContract):
    """Limits."""

    @pytest.fixture
    def bed(self) -> Iterator[Bed]:
        bed = real_bed()
        yield bed
        bed.close()


class TestKernelGroups(GroupsContract):
    """Groups of containers."""

    @pytest.fixture
    def bed(self) -> Iterator[Bed]:
        bed = real_bed()
        yield bed
        bed.close()


class TestKernelProcesses(ProcessesContract, KernelContract):
    """Processes."""

    @pytest.fixture
    def bed(self) -> Iterator[Bed]:
        bed = real_bed()
        yield bed
        bed.close()
