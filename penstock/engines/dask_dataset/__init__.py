"""Datasets executed by Dask: its workers are the job processes, its transfers the network (Ursa §4.1.4).

>>> from penstock.dataset import Dataset
>>> from penstock.engines.dask_dataset import run
>>> run(Dataset.from_items(range(10)).map(lambda item: item * item).collect())  # doctest: +SKIP

Started by: the program, which calls :func:`run`, or :func:`compute` without a cluster. Documented in docs/dataflow.md.
"""

from penstock.engines.dask_dataset.execution import Options, WorkerGoneError, compile_graph, compute, run, run_plan

__all__ = ["Options", "WorkerGoneError", "compile_graph", "compute", "run", "run_plan"]
