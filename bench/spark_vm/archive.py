"""``python -m bench.spark_vm.archive``: make the archives of classes, with Spark mounted where it will be."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from bench.spark_vm import java
from bench.spark_vm.applications import APPLICATIONS, Application

_TIMEOUT_S = 600.0


def main() -> None:
    """Run every application on a little cluster within its driver, and archive the classes that were loaded.

    Raises:
        subprocess.CalledProcessError: an application failed, or an archive could not be written.
    """
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        driver: set[str] = set()
        executor: set[str] = set()
        for each in APPLICATIONS:
            _run(each, APPLICATIONS[each], work)
            driver.update((work / "driver").read_text().splitlines())
            executor.update((work / "executor").read_text().splitlines())
        _dump(work, driver, java.CLASS_PATH, java.ARCHIVE, "-XX:+UseSerialGC")
        _dump(work, executor, java.EXECUTORS_CLASS_PATH, java.EXECUTORS_ARCHIVE, "-XX:+UseSerialGC")


def _run(name: str, application: Application, work: Path) -> None:
    properties = {
        **application.properties(),
        "warmUp": "local-cluster[1,1,1024]",  # with an executor in a process of its own
        "spark.app.name": name,
        "spark.master": "local[1]",  # it registers, and nothing arrives
        "spark.jars": str(java.JAR),
        "spark.local.dir": str(work),
        "spark.executor.extraJavaOptions": f"-Xshare:off -XX:DumpLoadedClassList={work}/executor",
    }
    command = java.command(
        application.main, "-", str(java.LITTLE / name), str(work / f"out-{name}"),
        options=("-Xshare:off", f"-XX:DumpLoadedClassList={work}/driver"), properties=properties,
    )  # fmt: skip
    environment = {**os.environ, **java.ENVIRONMENT}
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, env=environment, cwd=work, timeout=_TIMEOUT_S)


def _dump(work: Path, classes: set[str], class_path: str, archive: Path, collector: str) -> None:
    (work / "classes").write_text("\n".join(sorted(classes)))
    command = [
        f"{java.JDK}/bin/java", "-Xshare:dump", collector, f"-XX:SharedClassListFile={work}/classes",
        f"-XX:SharedArchiveFile={archive}", "-cp", class_path,
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=_TIMEOUT_S)


if __name__ == "__main__":
    main()
