"""How Spark's Java processes are started: the same everywhere, as archives of classes hold for one class path only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

#: Where Spark is, in the machine and where its archives are made.
HOME = Path("/srv")
JDK = HOME / "jdk"
JAR = HOME / "applications.jar"
#: What drivers read before they are ready.
LITTLE = HOME / "little"
#: Of the daemons and of drivers; and of executors, whose class path Spark's Worker makes from SPARK_HOME.
ARCHIVE = HOME / "spark.jsa"
EXECUTORS_ARCHIVE = HOME / "executor.jsa"
CLASS_PATH = f"{JAR}:{HOME}/jars/spark.jar"
EXECUTORS_CLASS_PATH = f"{HOME}/conf:{HOME}/jars/spark.jar"
#: An emulated processor compiles slowly, and these processes live for minutes.
QUICK = ("-XX:TieredStopAtLevel=1", "-Xlog:disable", "-Xlog:all=error:stderr")
ENVIRONMENT = {
    "JAVA_HOME": str(JDK),
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_SCALA_VERSION": "2.13",
}
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.io", "java.net", "java.nio", "java.util", "java.util.concurrent"),
    *("sun.nio.ch", "sun.util.calendar"),
)


def command(main: str, *arguments: str, options: Sequence[str], properties: Mapping[str, str]) -> list[str]:
    """The command line of one of Spark's processes that is no executor."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    defined = [f"-D{key}={value}" for key, value in properties.items()]
    java = [f"{JDK}/bin/java", *QUICK, "-XX:+UseSerialGC", *options, *opened, *defined]
    return [*java, "-cp", CLASS_PATH, main, *arguments]
