"""Two disks for the virtual machine: Spark with a JDK and the four applications; and what they read. Built once.

They are cached apart from the machine's own image, under the hash of what went into them, so that the tests' machine
stays as small as it is.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.spark_vm import java
from bench.spark_vm.applications import APPLICATIONS
from tests.vm.host import find, say
from tests.vm.image import ROOT

_HERE = Path(__file__).resolve().parent
SPARK = "4.3.0"
JDK = "openjdk-17-jdk-headless"
_JDK_IN_DEBIAN = "usr/lib/jvm/java-17-openjdk-amd64"
_SPARK_SIZE = "1500M"
#: Room for inputs, shuffles and outputs of everything that runs in one machine's life.
_DATA_SIZE = "4G"


@dataclass(frozen=True)
class Disks:
    """Images of ext4 file systems labelled ``spark`` and ``data``."""

    spark: Path
    data: Path


def ensure() -> Disks:
    """The disks, built if the cache has none.

    Raises:
        subprocess.CalledProcessError: a step of the build failed; its output has been shown.
    """
    base = Path(os.environ.get("PENSTOCK_VM_CACHE") or Path.home() / ".cache/penstock/vm")
    cache = base.with_name(f"{base.name}-spark")
    made = cache / _fingerprint()
    if not made.exists():
        say(f"building Spark's disks into {made} (once; a few minutes)")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="partial-", dir=cache) as name:
            _build(Path(name))
            (Path(name) / "disks").rename(made)
        for old in cache.iterdir():
            if old != made:
                shutil.rmtree(old, ignore_errors=True)
    return Disks(made / "spark.img", made / "data.img")


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{SPARK} {JDK} {_SPARK_SIZE} {_DATA_SIZE}".encode())
    for path in sorted(
        [*_HERE.glob("apps/*.java"), *(_HERE / f"{each}.py" for each in ("disks", "data", "java", "archive"))]
    ):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    inputs = {name: (each.main, each.kind.__name__, each.lines) for name, each in APPLICATIONS.items()}
    digest.update(repr(sorted(inputs.items())).encode())
    return digest.hexdigest()[:16]


def _build(work: Path) -> None:
    spark = work / "spark"
    (work / "disks").mkdir()
    _jdk(work, spark / "jdk")
    _jars(work, spark)
    _compile(work, spark)
    inputs = work / "data" / "input"
    inputs.mkdir(parents=True)
    (spark / java.LITTLE.name).mkdir()
    for name, application in APPLICATIONS.items():
        application.input(inputs / name)
        application.little_input(spark / java.LITTLE.name / name)
    _archive(spark)
    _file_system(spark, work / "disks" / "spark.img", "spark", _SPARK_SIZE)
    _file_system(work / "data", work / "disks" / "data.img", "data", _DATA_SIZE)


def _jdk(work: Path, to: Path) -> None:
    """Debian's, unpacked only: the archives of its classes are in the package."""
    root = work / "debian"
    _run(
        find("mmdebstrap"), "--quiet", f"--mode={'root' if os.geteuid() == 0 else 'unshare'}", "--variant=extract",
        f"--include={JDK}", "--format=directory", "bookworm", str(root),
    )  # fmt: skip
    shutil.copytree(root / _JDK_IN_DEBIAN, to, symlinks=True, ignore=shutil.ignore_patterns("jmods", "docs", "man"))
    for link in [path for path in to.rglob("*") if path.is_symlink()]:  # its configuration is in /etc
        if (target := link.readlink()).is_absolute():
            link.unlink()
            if (there := root / target.relative_to("/")).is_file():
                shutil.copy2(there, link)
    shutil.rmtree(root)


def _jars(work: Path, spark: Path) -> None:
    """Spark as it is in the pyspark of PyPI, behind one jar that names all others.

    The order of a class path ``jars/*`` is that of the directory, and archives of classes hold for one order only.
    """
    to = spark / "lib"
    _run(
        sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps",
        "--no-binary=:all:", f"--dest={work}", f"pyspark=={SPARK}",
    )  # fmt: skip
    prefix = f"pyspark-{SPARK}/deps/jars/"
    to.mkdir()
    with tarfile.open(work / f"pyspark-{SPARK}.tar.gz") as archive:
        for member in archive:
            name = member.name.removeprefix(prefix)
            if member.isfile() and name != member.name and "/" not in name:
                member.name = name
                archive.extract(member, to, filter="data")
    (spark / "jars").mkdir()
    named = " ".join(f"../lib/{jar.name}" for jar in sorted(to.iterdir()))
    # A line of a manifest has 72 bytes, and what continues it begins with a space.
    text = f"Class-Path: {named}"
    folded = "\n ".join([text[:70], *(text[at : at + 69] for at in range(70, len(text), 69))])
    (work / "manifest").write_text(f"{folded}\n")
    _run(str(spark / "jdk/bin/jar"), "cfm", str(spark / "jars" / "spark.jar"), str(work / "manifest"))


def _compile(work: Path, spark: Path) -> None:
    classes = work / "classes"
    sources = map(str, sorted(_HERE.glob("apps/*.java")))
    _run(str(spark / "jdk/bin/javac"), "-cp", f"{spark}/jars/*", "-d", str(classes), *sources)
    _run(str(spark / "jdk/bin/jar"), "cf", str(spark / "applications.jar"), "-C", str(classes), ".")


def _archive(spark: Path) -> None:
    """Archives of the classes that the daemons and drivers, and the executors, load: they start in half the time.

    They hold for the paths at which they were made, so Spark is mounted where it will be, for one process.
    """
    _run(
        find("unshare"), "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)),
        "sh", "-euc", f'mount --bind "$1" {java.HOME}; shift; exec "$@"', "sh", str(spark),
        sys.executable, "-m", "bench.spark_vm.archive",
    )  # fmt: skip
    shutil.rmtree(spark / "work")  # of the little clusters


def _file_system(content: Path, image: Path, label: str, size: str) -> None:
    _run(
        find("mke2fs"), "-q", "-F", "-t", "ext4", "-O", "^metadata_csum", "-E", "root_owner=0:0", "-L", label,
        "-d", str(content), str(image), size,
    )  # fmt: skip


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        say(f"failed: {' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        done.check_returncode()
