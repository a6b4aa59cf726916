"""The virtual machine of the benchmark: it boots in a second, runs one command, and is gone."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.spark_vm.disks import Disks
from tests.vm import checkout
from tests.vm.host import dying_with_us
from tests.vm.image import ensure_image
from tests.vm.user_mode_kernel import ensure_kernel

#: Where the machine has the host's directory.
SHARED = Path("/mnt")
MEMORY_MIB = 10_240
PROCESSORS = 2
#: The major number of its disks, and the minor one of the third (arch/um/drivers/ubd_kern.c).
_DATA_DEVICE = "98:32"
_INIT = Path(__file__).with_name("init.sh")
_DID_NOT_END = 71


def run(command: Sequence[str], shared: Path, disks: Disks, disk_bytes_per_s: int) -> int:
    """Run a command in the checkout there; its output goes where ours goes. Data written to disks is dropped.

    ``shared`` is a directory that the machine has at :data:`SHARED`, for input and output.

    Returns:
        The command's exit status; 71 if the machine ended before it.
    """
    linux, image = ensure_kernel(), ensure_image()
    status = shared / "status"
    status.unlink(missing_ok=True)
    with (shared / "checkout.tgz").open("wb") as archive:
        checkout.pack(archive)
    shutil.copy(_INIT, shared / "init.sh")
    (shared / "io.max").write_text(f"{_DATA_DEVICE} rbps={disk_bytes_per_s} wbps={disk_bytes_per_s}\n")
    (shared / "command").write_text(f"cd {checkout.REMOTE} && exec env PYTHONUNBUFFERED=1 {shlex.join(command)}\n")
    with tempfile.TemporaryDirectory(prefix="penstock-uml-") as work:
        boot = [
            str(linux), f"mem={MEMORY_MIB}M", f"ncpus={PROCESSORS}", "seccomp=on", f"uml_dir={work}", "quiet",
            f"ubd0={work}/root,{image.disk}", f"ubd1r={disks.spark}", f"ubd2={work}/data,{disks.data}",
            "root=/dev/ubda", "rw", "con=null", "con0=null,fd:1", "con1=null", "ssl=null", "init=/bin/bash", "--",
            "-c", f'"mount -t hostfs none {SHARED} -o {shared.absolute()}; exec bash {SHARED}/init.sh"',
        ]  # fmt: skip
        running = subprocess.Popen(dying_with_us(boot), stdin=subprocess.DEVNULL)
        try:
            running.wait()
        finally:
            running.kill()
            running.wait()
    return int(status.read_text()) if status.exists() else _DID_NOT_END
