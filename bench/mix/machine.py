"""The benchmark's virtual machine: the tests' machine in user mode, with the benchmark's image."""

from __future__ import annotations

from bench.mix import layer
from tests.vm.image import Image
from tests.vm.user_mode import UserModeMachine


class MixMachine(UserModeMachine):
    """A machine that boots the benchmark's image instead of the given one."""

    def boot(self, image: Image) -> None:
        """Boot, until ssh answers. Called once."""
        super().boot(layer.ensure())
