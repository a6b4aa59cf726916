"""Parsing of the command line with which Spark's Worker starts an executor."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.model.units import parse_bytes

#: The main class of a standalone cluster's executors (``bin/java`` looks for it, too).
BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\Z")
_PROCESSORS = "-XX:ActiveProcessorCount="
#: ZGC, as it obeys SoftMaxHeapSize, and returns memory that was unused for 5 s (docs/benchmarks/spark.md).
_ELASTIC_HEAP = ("-XX:+UseZGC", "-XX:ZUncommitDelay=5")


class NoExecutor(ValueError):  # noqa: N818 - the same java starts other programs
    """The command line is not that of an executor. The message names the missing part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorCommand:
    """``java OPTIONS CoarseGrainedExecutorBackend ARGUMENTS``, as parsed by :func:`read`.

    ``cores`` and ``heap_bytes`` (-Xmx) are the values of ``spark.executor.cores`` and ``spark.executor.memory``.
    ``driver_url`` has the driver's address; "" if it is not given.
    """

    options: tuple[str, ...]
    arguments: tuple[str, ...]
    application_id: str
    executor_id: str
    cores: int
    heap_bytes: int
    driver_url: str = ""

    def elastic(self) -> tuple[str, ...]:
        """Return options and arguments with which the heap can follow a memory limit, and threads ignore CPU limits.

        A collector chosen by the user is kept. Without a number of processors, the JVM counts those allowed by the
        container's limit at its start, and sizes its thread pools by them for its whole life.
        """
        added: list[str] = []
        if not any(map(_COLLECTOR.match, self.options)):
            added += _ELASTIC_HEAP
        if not any(option.startswith(_PROCESSORS) for option in self.options):
            added.append(f"{_PROCESSORS}{self.cores}")
        return (*added, *self.options, BACKEND, *self.arguments)


def read(argv: tuple[str, ...]) -> ExecutorCommand:
    """Parse ``argv`` (without ``java`` itself).

    Raises:
        NoExecutor: it starts another program, or lacks arguments.
    """
    if BACKEND not in argv:
        raise NoExecutor(f"no {BACKEND} in the command line")
    at = argv.index(BACKEND)
    options, arguments = argv[:at], argv[at + 1 :]
    named = dict(zip(arguments[::2], arguments[1::2], strict=False))
    sizes = [option.removeprefix("-Xmx") for option in options if option.startswith("-Xmx")]
    if not sizes:
        raise NoExecutor("no -Xmx in the executor's command line")
    try:
        return ExecutorCommand(
            cores=int(named["--cores"]),
            options=options,
            arguments=arguments,
            application_id=named["--app-id"],
            executor_id=named["--executor-id"],
            heap_bytes=parse_bytes(sizes[-1]),  # the last one counts, as in the JVM
            driver_url=named.get("--driver-url", ""),
        )
    except KeyError as missing:
        raise NoExecutor(f"no {missing.args[0]} in the executor's command line") from None
    except ValueError as error:
        raise NoExecutor(str(error)) from None
