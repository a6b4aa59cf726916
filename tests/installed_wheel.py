"""The wheel in virtual environments with the packages that its extras name, and no others.

Distributions are linked from the environment that runs the tests, so that an environment takes a second and no index is
asked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
#: The extras that the playbooks install on nodes, and on masters.
NODE = ("agent", "master")
ON_MASTERS = (*NODE, "prediction")


@dataclass(frozen=True)
class Environment:
    """A virtual environment in which the wheel is installed."""

    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin/python"

    def run(
        self, *argv: str, cwd: Path | None = None, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """``penstock ARGV…`` to its end."""
        return subprocess.run(
            [str(self.directory / "bin/penstock"), *argv], cwd=cwd, env={**os.environ, **(environment or {})},
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, check=False,
        )  # fmt: skip


def build(directory: Path) -> Path:
    """The wheel of this checkout."""
    from hatchling.builders.wheel import WheelBuilder

    (built,) = WheelBuilder(str(ROOT)).build(directory=str(directory), versions=["standard"])
    return Path(built)


def installed(wheel: Path, directory: Path, *extras: str) -> Environment:
    """Install the wheel with these extras into a fresh environment."""
    made = Environment(directory)
    venv.create(directory, symlinks=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(made.python), "install",
         "--no-index", "--no-deps", "--no-compile", str(wheel)],
        check=True,
    )  # fmt: skip
    _link_all(made, extras)
    return made


def copied(of: Environment, directory: Path, *extras: str) -> Environment:
    """As installed, with these extras beside those of an environment that has been: pip takes a second.

    The wheel's packages are that one's own: they are compiled once.
    """
    site = _site(of)
    packages = {path.name for path in site.iterdir() if path.is_dir() and not path.name.endswith(".dist-info")}
    shutil.copytree(
        of.directory, directory, symlinks=True,
        ignore=lambda where, _: packages if Path(where) == site else (),
    )  # fmt: skip
    made = Environment(directory)
    for package in packages:
        (_site(made) / package).symlink_to((site / package).resolve())
    for script in (directory / "bin").iterdir():
        if not script.is_symlink():
            script.write_bytes(script.read_bytes().replace(bytes(of.directory), bytes(directory)))
    _link_all(made, extras)
    return made


def _site(of: Environment) -> Path:
    (found,) = of.directory.glob("lib/python3*/site-packages")
    return found


def _link_all(made: Environment, extras: tuple[str, ...]) -> None:
    """All that the wheel needs with these extras."""
    site = _site(made)
    (ours,) = site.glob("penstock-*.dist-info")
    for needed in _closure(Distribution.at(ours), set(extras)):
        _link(needed, site)


def _closure(of: Distribution, extras: set[str]) -> list[Distribution]:
    """All distributions that one needs with these extras, itself left out."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()

    def follow(one: Distribution, wanted: set[str]) -> None:
        for requirement in _required(one, wanted):
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            fresh = {extra for extra in ("", *requirement.extras) if (name, extra) not in seen}
            seen.update((name, extra) for extra in fresh)
            if name == "penstock":
                follow(of, fresh)
            elif fresh:
                found[name] = distribution(name)
                follow(found[name], fresh)

    follow(of, {"", *extras})
    return list(found.values())


def _required(one: Distribution, extras: set[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, one.requires or ()):
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            yield requirement


def _link(needed: Distribution, site: Path) -> None:
    """Its packages and its metadata: the first part of each of its files' paths."""
    names = {file.parts[0] for file in needed.files or () if file.parts[0] not in {"..", "__pycache__"}}
    for name in names:
        if not (site / name).exists():
            (site / name).symlink_to(str(needed.locate_file(name)))


class Environments:
    """One environment for each choice of extras, made when it is asked for first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[tuple[str, ...], Environment] = {(): installed(build(directory), directory / "with")}

    def having(self, *extras: str) -> Environment:
        if extras not in self._made:
            self._made[extras] = copied(self._made[()], self._directory / "-".join(("with", *extras)), *extras)
        return self._made[extras]
