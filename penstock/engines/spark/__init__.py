"""Executors of a Spark standalone cluster in containers of this host, placed and sized by Penstock (docs/spark.md).

Spark's Worker starts each executor with ``$JAVA_HOME/bin/java``, and a job may choose that ``JAVA_HOME`` by
``spark.executorEnv.JAVA_HOME``. Ours (:mod:`.java_home`) starts the executor's stand-in (:mod:`.stand_in`), which asks
the agent for a place for the real one and lives as long as it does. Application and stages come from what Spark's
Worker, Master and driver tell everybody (:mod:`.interface`). Nothing of Spark is imported or changed.
"""
