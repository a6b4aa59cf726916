"""The parts of an executor's command line, and the additions of the one that runs."""

from __future__ import annotations

import pytest

from penstock.engines.spark.executor_command import BACKEND, NoExecutor, read

OPTIONS = ("-cp", "/opt/spark/jars/*", "-Xmx600M", "-Dspark.driver.port=38225", "--add-modules=jdk.incubator.vector")
#: As Spark 4.3's Worker writes it.
ARGUMENTS = (
    "--driver-url", "spark://CoarseGrainedScheduler@localhost:38225", "--executor-id", "3", "--hostname", "127.0.0.1",
    "--cores", "2", "--app-id", "app-20261122023540-0000", "--worker-url", "spark://Worker@127.0.0.1:38175",
    "--resourceProfileId", "0",
)  # fmt: skip


def test_an_executor_is_read() -> None:
    command = read((*OPTIONS, BACKEND, *ARGUMENTS))
    assert (command.application_id, command.executor_id, command.cores) == ("app-20261122023540-0000", "3", 2)
    assert command.heap_bytes == 600 * 2**20
    assert command.driver_url == "spark://CoarseGrainedScheduler@localhost:38225"


def test_its_heap_becomes_elastic_and_its_threads_do_not() -> None:
    command = read((*OPTIONS, BACKEND, *ARGUMENTS))
    added = ("-XX:+UseZGC", "-XX:ZUncommitDelay=5", "-XX:ActiveProcessorCount=2")
    assert command.elastic() == (*added, *OPTIONS, BACKEND, *ARGUMENTS)


@pytest.mark.parametrize("collector", ["-XX:+UseG1GC", "-XX:+UseParallelGC", "-XX:+UseZGC"])
def test_a_chosen_collector_stays(collector: str) -> None:
    command = read((*OPTIONS, collector, "-XX:ActiveProcessorCount=7", BACKEND, *ARGUMENTS))
    assert command.elastic() == (*OPTIONS, collector, "-XX:ActiveProcessorCount=7", BACKEND, *ARGUMENTS)


def test_the_last_heap_size_counts() -> None:
    assert read((*OPTIONS, "-Xmx2g", BACKEND, *ARGUMENTS)).heap_bytes == 2 << 30


@pytest.mark.parametrize(
    ("argv", "missing"),
    [
        (("-Xmx1g", "org.apache.spark.deploy.worker.Worker"), BACKEND),
        ((BACKEND, *ARGUMENTS), "-Xmx"),
        (("-Xmx1g", BACKEND, *ARGUMENTS[:-6]), "--app-id"),
        (("-Xmx1g", BACKEND, "--cores", "many", *ARGUMENTS[:6]), "many"),
        (("-Xmxlots", BACKEND, *ARGUMENTS), "lots"),
    ],
)
def test_a_command_of_no_executor_is_reported(argv: tuple[str, ...], missing: str) -> None:
    with pytest.raises(NoExecutor, match=missing):
        read(argv)
