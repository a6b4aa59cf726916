"""An executor: a long-lived container of an application, whose demand varies and is predicted (Elasecutor §III)."""

import enum
from typing import Annotated

import msgspec


class Sizing(enum.StrEnum):
    """The settings that an executor's profile controls."""

    HARD = "hard"  # its limits: it gets the predicted resources and no more, so that runs are alike
    SHARED = "shared"  # its weights and guarantees: limits apply only under contention, idle capacity is used


class Executor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Marks a placed command as an executor: earlier runs of its ``application`` predict its demand.

    Its settings are ``input_bytes`` (of the whole run), and the command's promise, ``cpu_cores`` and ``memory_bytes``,
    which is reserved until a prediction exists (§IV.C). Executors of one user with the same ``run`` belong to one run;
    if ``run`` is empty, those of one job do. With ``jvm`` the heaps of its Java processes follow its memory.
    """

    application: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    input_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    run: Annotated[str, msgspec.Meta(max_length=128)] = ""
    sizing: Sizing = Sizing.HARD
    jvm: bool = False
