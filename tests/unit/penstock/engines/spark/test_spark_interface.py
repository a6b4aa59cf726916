"""The values read from Spark's pages, and the errors when the pages are not there."""

from __future__ import annotations

import pytest

from penstock.engines.spark.interface import Interface, NotPublished, read_stages
from penstock.wire.agent_api import StageProgress
from tests.spark_pages import APPLICATION, spark_pages, stage


async def test_the_worker_names_the_application() -> None:
    with spark_pages() as pages:
        assert await Interface(pages.log_url, APPLICATION).name() == "word count"
        with pytest.raises(NotPublished, match="does not know app-7"):
            await Interface(pages.log_url, "app-7").name()


async def test_the_driver_is_found_once_and_reports_the_stages() -> None:
    with spark_pages() as pages:
        interface = Interface(pages.log_url, APPLICATION)
        pages.stages = [stage(1, 8, 3), stage(0, 4, 4, "COMPLETE")]
        wanted = [StageProgress(stage="0", tasks=4, done=4), StageProgress(stage="1", tasks=8, done=3)]
        assert await interface.stages() == wanted
        assert await interface.stages() == wanted
        assert pages.asked.count("/json/") == 1


async def test_a_stage_that_the_driver_dropped_stays() -> None:
    with spark_pages() as pages:
        interface = Interface(pages.log_url, APPLICATION)
        pages.stages = [stage(0, 4, 4, "COMPLETE")]
        await interface.stages()
        pages.stages = [stage(5, 1, 0)]
        assert [each.stage for each in await interface.stages()] == ["0", "5"]


async def test_a_driver_that_is_gone_is_looked_for_again() -> None:
    with spark_pages() as pages:
        interface = Interface(pages.log_url, APPLICATION)
        await interface.stages()
        pages.stages = None
        with pytest.raises(NotPublished, match="404"):
            await interface.stages()
        pages.stages = []
        assert await interface.stages() == []
        assert pages.asked.count("/json/") == 2


async def test_an_unreachable_page_is_one_line() -> None:
    with spark_pages() as pages:
        gone = pages.log_url
    for url in (gone, "https://10.0.0.1/logPage/", ""):
        with pytest.raises(NotPublished) as told:
            await Interface(url, APPLICATION).name()
        assert "\n" not in str(told.value)


def test_the_latest_attempt_counts_and_skipped_stages_do_not() -> None:
    listed = [stage(0, 4, 1, "FAILED"), stage(0, 4, 2, attempt=1), stage(0, 4, 0, "FAILED"), stage(1, 9, 0, "SKIPPED")]
    assert read_stages(listed) == {0: StageProgress(stage="0", tasks=4, done=2)}


def test_a_complete_stage_is_done() -> None:
    """Spark does not run all tasks of a stage of which nothing more is wanted."""
    assert read_stages([stage(2, 8, 5, "COMPLETE")])[2].done == 8


@pytest.mark.parametrize("listed", [[{"stageId": 1}], {"a": 1}, 7, [[]]])
def test_other_answers_are_not_stages(listed: object) -> None:
    with pytest.raises(NotPublished, match="cannot be read"):
        read_stages(listed)
