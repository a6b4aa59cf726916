"""For any composition of datasets, Dask's result of the whole graph is that of plain Python."""

from __future__ import annotations

from hypothesis import given, settings

from penstock.engines.dask_dataset import compute
from tests.dataset_pipelines import Both, pipelines


@given(pipelines())
@settings(max_examples=60)
def test_the_result_is_that_of_plain_python(made: Both) -> None:
    assert made.agrees(compute(made.dataset.collect()))
    assert compute(made.dataset.count()) == len(made.items)
