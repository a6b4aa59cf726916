"""Run one command beside another: ``python -m tests.beside 'make test-not-alone' 'make test-host'``.

The output of the first is shown when both have ended. The exit status is 1 if either failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time


def main(beside: str, foreground: str) -> int:
    """Run both commands by the shell; return the exit status."""
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(
            ["sh", "-c", beside], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        ) as process:
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
