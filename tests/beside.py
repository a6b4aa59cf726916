"""Run one command beside another: ``python -m tests.beside 10 'make test-emulated' 'make test-alone'``.

The number is the nice value of the first command; at 10 it gets a tenth of the processor time of the second. Its output
is shown when both have ended. The exit status is 1 if either failed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(nice: str, beside: str, foreground: str) -> int:
    """Run both commands by the shell; return the exit status."""
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(
            ["nice", f"-n{nice}", "sh", "-c", beside],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        ) as process:  # fmt: skip
            # sched(7): where sessions are weighed (autogroup), the session's value counts, elsewhere the process's.
            with contextlib.suppress(OSError):
                Path(f"/proc/{process.pid}/autogroup").write_text(nice)
            started = time.monotonic()
            try:
                failed = subprocess.run(["sh", "-c", foreground], check=False).returncode != 0
                _say(f"{foreground}: {'FAILED' if failed else 'passed'} in {time.monotonic() - started:.0f} s")
                failed_beside = process.wait() != 0
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, 15)
        output.seek(0)
        sys.stdout.buffer.write(output.read())
        _say(f"{beside}: {'FAILED' if failed_beside else 'passed'} in {time.monotonic() - started:.0f} s")
    return int(failed or failed_beside)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
