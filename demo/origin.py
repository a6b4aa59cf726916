"""Where figures come from: the commit of the checkout and the machine."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

_PROJECT = Path(__file__).resolve().parent.parent


def commit(project: Path = _PROJECT) -> str:
    """Return the commit of the checkout, with ``-dirty`` where files were changed; empty where git does not know."""
    if shutil.which("git") is None:
        return ""
    command = ["git", "-C", str(project), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=10"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor and the kernel of this host."""
    try:
        found = re.search(r"^model name\s*: (.+)$", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    processor = " ".join(found[1].split()) if found else platform.machine()
    return f"{processor}, Linux {platform.release().partition('-')[0]}"
