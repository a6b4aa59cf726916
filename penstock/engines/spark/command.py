"""``penstock spark-config``: prepare this host for gated executors, and print the configuration that uses it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from penstock.cli import arguments
from penstock.cli.errors import CommandError, note, usage_error
from penstock.engines.spark import java_home
from penstock.model.executor import Sizing


def main(argv: list[str]) -> int:
    """Run the command; return 0."""
    options = _parser().parse_args(argv)
    home = options.java_home or java_home.find_java()
    if home is None:
        raise CommandError("no Java on this host; install one (17 or newer) or name it with --java-home")
    if not os.access(home / "bin/java", os.X_OK):
        raise usage_error(f"--java-home: {home}/bin/java does not exist or is not executable")
    if java_home.is_ours(home):
        raise usage_error(f"--java-home: {home} was created by this command; name the real one")
    directory = options.directory.absolute()
    try:
        if not java_home.is_free(directory, home):
            raise usage_error(f"--directory: {directory} belongs to a real Java; name another")
        java_home.make(directory, home.absolute())
    except OSError as error:
        raise CommandError(f"cannot create {directory}: {error.strerror}; name another with --directory") from None
    note("spark-config", f"wrote {directory}: a JAVA_HOME of links to {home}; name another place with --directory")
    for name, value in _properties(directory, options):
        print(f"spark.executorEnv.{name} {value}")  # noqa: T201 - the command's purpose
    if options.speculation:
        print("spark.speculation true")  # noqa: T201
    return 0


def _properties(directory: Path, options: argparse.Namespace) -> list[tuple[str, str]]:
    properties = [("JAVA_HOME", str(directory))]
    if options.application:
        properties.append(("PENSTOCK_APPLICATION", options.application))
    if options.cores:
        properties.append(("PENSTOCK_CORES", f"{options.cores:g}"))
    if options.input_bytes:
        properties.append(("PENSTOCK_INPUT_BYTES", str(options.input_bytes)))
    if options.sizing is not Sizing.SHARED:
        properties.append(("PENSTOCK_SIZING", options.sizing.value))
    return properties


def _parser() -> arguments.Parser:
    parser = arguments.Parser(
        "spark-config",
        "Prepare this host for Spark executors in Penstock's containers, and print the configuration that uses it.",
        "Run it on every host of the cluster with the same --directory; add its output to a job by\n"
        "spark-submit --properties-file or --conf, or to conf/spark-defaults.conf for all jobs.",
    )
    add = parser.add_argument
    add("--java-home", type=Path, metavar="DIR", help="the real Java (default: $JAVA_HOME, else that of the PATH)")
    add("--directory", type=Path, default=_directory(), metavar="DIR", help="created here (default: %(default)s)")
    add("--application", default="", metavar="NAME", help="the name of recorded runs (default: spark.app.name)")
    add("--cores", type=arguments.cores, default=0.0, metavar="N", help="per executor (default: spark.executor.cores)")
    add("--input-bytes", type=arguments.size, default=0, metavar="SIZE", help="the run's input, for example 4G")
    add(
        "--sizing",
        type=Sizing,
        choices=list(Sizing),
        default=Sizing.SHARED,
        help="limits (hard) or guarantees (shared) follow the predicted demand (default: %(default)s)",
    )
    add("--speculation", action="store_true", help="also print the setting by which Spark runs copies of slow tasks")
    return parser


def _directory() -> Path:
    """Return the directory: the same on every host, and readable for the user of Spark's Worker."""
    if os.geteuid() == 0:
        return Path("/usr/local/lib/penstock/spark-java")
    return Path.home() / ".local/share/penstock/spark-java"
