"""Executors of a Spark standalone cluster in containers of this host, placed and sized by Penstock.

Started by: Spark's Worker, after ``penstock spark-config`` (:mod:`.command`) has prepared the host. Documented in
docs/spark.md.

Spark's Worker starts each executor with ``$JAVA_HOME/bin/java``, and a job may set that ``JAVA_HOME`` by
``spark.executorEnv.JAVA_HOME``. Penstock's ``JAVA_HOME`` (:mod:`.java_home`) starts the executor's stand-in
(:mod:`.stand_in`), which asks the agent to place the real executor and lives as long as it does. The application's name
and its stages are public data of Spark's Worker, Master and driver (:mod:`.interface`). Nothing of Spark is imported or
changed.
"""
