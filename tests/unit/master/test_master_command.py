"""`penstock master`: bad input is one clear line and exit status 2; the help is the declaration."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from master.command import main
from master.config import MasterConfig
from master.core import MasterSettings


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--set", "lisen=1"], "unknown key 'lisen'; did you mean 'listen'?"),
        (["--set", "nonsense"], "'nonsense' is not KEY=VALUE"),
        (["--set", "ordering=best"], "ordering: 'best' is unknown; one of drf, ejf, fair"),
        (["--set", "ept_s=10ms"], "ept_s: 0.01 is below interval_s (0.1); set it above"),
        (["--set", "node_timeout_s=1"], "node_timeout_s: 1 is below two heartbeats (1 s each)"),
        (["--set", "drained_timeout_s=9"], "drained_timeout_s: 9 is below node_timeout_s (10)"),
        (["--set", "listen=loopback"], "listen: 'loopback' is neither ADDRESS:PORT nor"),
        (["--set", "las_mq_queues=2", "--set", "las_mq_weights=[1.0]"], "las_mq_weights: 1 are given for 2 queues"),
        (["--set", "las_mq_step=1"], "las_mq_step: a number of more than 1 expected"),
        (["--set", "weights={research = 0.0}"], "weights.research: 0 is not above 0"),
        (["--set", 'tenants={eve = ""}'], "tenants.eve: '' has an empty part; name a tenant"),
        (["--set", 'tenants={eve = "a/"}'], "tenants.eve: 'a/' has an empty part"),
        (["--set", "tenants={eve = 3}"], "tenants.eve: text expected, and a whole number found"),
        (["--set", 'weights={"research/eve" = "x"}'], 'weights."research/eve": a number expected, and text found'),
        (["--set", "bundles={small = 3}"], "bundles.small: text expected, and a whole number found"),
        (["--set", "srjf_weight=1000"], "srjf_weight: a number of at most 500 expected"),
        (["--set", "las_mq_step_size=2"], "unknown key 'las_mq_step_size'; did you mean 'las_mq_step'?"),
        (["--set", "interval_s=0"], "interval_s: a number of more than 0 expected"),
        (["--config", "/does/not/exist"], "/does/not/exist: No such file or directory"),
    ],
)
def test_bad_input_is_one_clear_line(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", "listen=/run/penstock/master.sock", *argv]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("penstock master: ")
    assert error.count("\n") == 1


def test_an_unknown_option_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--confg=x"]) == 2
    assert capsys.readouterr().err == "penstock master: unknown argument '--confg'; did you mean '--config'?\n"


def test_help_documents_every_key_from_its_declaration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    for field in msgspec.structs.fields(MasterConfig):
        description = msgspec.json.schema(field.type)["description"]
        assert f"  {field.encode_name} " in said
        assert description in said


#: How often a task may be lost is not configurable.
_NOT_CONFIGURED = {"max_losses"}


def test_every_setting_of_the_core_is_configured() -> None:
    config = MasterConfig(
        preemption_backoff_s=3.0, preemption_backoff_max_s=40.0,
        interval_s=0.2, ept_s=0.7, ordering="las_mq", ejf_weight=3.0, srjf_weight=4.0, las_quantum_s=5.0,
        las_mq_queues=2, las_mq_first_threshold_container_s=6.0, las_mq_step=7.0, las_mq_weights=(8.0, 1.0),
        las_mq_stage_aware=False, las_mq_inside="fifo", tenants={"eve": "research/eve"}, weights={"research": 2.0},
        share_chunk_tasks=9, max_running_jobs=10, placement="tetris",
        tetris_peak_to_mean=12.0, stage_aware=False, network_aware=False, memory_estimate=True,
        admission_wait_max_s=11.0, heartbeat_s=2.0, node_timeout_s=20.0, promotion=False,
        drained_timeout_s=30.0, gather_s=6.0,
        default_cpu_bytes_per_s=1.0, default_disk_bytes_per_s=2.0, default_network_bytes_per_s=3.0,
        executor_placement="trc", executor_slot_s=5.0, executor_horizon_slots=60,
        user_max_jobs=13, user_max_cores=14.0, user_max_memory_bytes=15,
    )  # fmt: skip
    settings, plain = config.cluster_settings(), MasterConfig()
    for field in dataclasses.fields(MasterSettings):
        if field.name not in _NOT_CONFIGURED:
            assert getattr(settings, field.name) == getattr(config, field.name) != getattr(plain, field.name)
