"""Writes the generated parts of docs/protocol.md (between the markers) from the declarations in penstock.wire.

python docs/make_protocol.py            # rewrite
python docs/make_protocol.py --check    # exit status 1 if it is out of date
"""

from __future__ import annotations

import enum
import inspect
import json
import re
import sys
import types
import typing
from pathlib import Path
from typing import Annotated, Any

import msgpack
import msgspec

from penstock.model.container import Choice, ContainerSpec, Ended, EndedBy, Limits, Notice
from penstock.model.executor import Executor, Sizing
from penstock.model.profile import Profile
from penstock.model.resources import Capacity, KindAmounts, ResourceKind
from penstock.model.work import MonotaskSpec, TaskRequest
from penstock.wire import agent_api as api
from penstock.wire import cluster_api, config_api, jobs_api, master_api, overview_api, reservation_api
from penstock.wire.connection import RpcConnection, to_wire
from penstock.wire.errors import ErrorBody, ErrorCode

PAGE = Path(__file__).with_name("protocol.md")
WIDTH = 120
#: Fields whose types say less than the page can.
_OPEN_FIELDS = {
    "status": "map: [the status document](#the-status-document), of `cluster_status` [the master's](scheduling.md)",
    "rdl": "string, or map: a request in [RDL](reservations.md), as text or as JSON",
    "explained": "map: see [jobs](jobs.md)",
    "value": "boolean, number, string or array: as the key's type in [configuration](configuration.md)",
}
#: What the bounds of an array and of a map count.
_COUNTED = {"array": "elements", "map": "entries"}
#: Words of docstrings that mean something else on the page.
_WORDS = (
    (r"`?\bNone\b`?|\bnull\b", "nil"),
    (r"\bdocs/protocol\.md\b", "this page"),
    (r"\bdocs/([a-z-]+)\.md\b", r"[\1](\1.md)"),
    (r"^Agent → framework: (.)", lambda found: found[1].upper()),
)
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

_MONOTASKS = [
    MonotaskSpec(id=1, kind=ResourceKind.DISK, input_bytes=1 << 20, stage="read"),
    MonotaskSpec(id=2, kind=ResourceKind.CPU, input_bytes=1 << 20, stage="map", task="m-1"),
]
_TASK = TaskRequest(
    task="m-1",
    usage=KindAmounts(cpu=1048576.0),
    memory_bytes=64 << 20,
    command=ContainerSpec(argv=("wc", "-w", "in.txt"), cwd="/srv/data"),
)
_SPEC = ContainerSpec(
    argv=("sort", "big.txt"), cwd="/srv/data", limits=Limits(cpu_cores=0.5, memory_max_bytes=64 << 20), detach=True
)
_CAPACITY = Capacity(cores=2.0, memory_bytes=2 << 30)
_ENDED = Ended(by=EndedBy.EXIT, exit_status=0, cpu_seconds=0.5, memory_peak_bytes=8 << 20, wall_seconds=1.0)
_RDL = "window(atom(<1GB,1core>, 1, 4, 5min, 1h), +1h, +3h)"
_RESERVED = reservation_api.Reserved(
    reservation="r-1",
    user="eve",
    rdl=_RDL,
    created_at=1795000000.0,
    name="nightly",
    promised=[
        reservation_api.PromisedPiece(
            start=1795009900.0, finish=1795010800.0, bundles=4, cpu_cores=1.0, memory_bytes=1000000000
        )
    ],
)

#: One example of each method: what is asked and what is answered.
REQUEST_EXAMPLES: dict[str, tuple[api.Params, api.Result]] = {
    "hello": (
        api.Hello(protocol=api.PROTOCOL, client="example"),
        api.Welcome(
            protocol=api.PROTOCOL,
            version="0.1.0",
            node="alpha",
            user="eve",
            capacity=_CAPACITY,
            network_bypass_bytes=16384,
            max_frame_bytes=8388608,
            enforced=["cpu", "memory"],
            master=True,
        ),
    ),
    "register_job": (
        api.RegisterJob(name="wordcount", memory_bytes=256 << 20),
        api.JobRegistered(job="j-1", admitted=True),
    ),
    "end_job": (api.JobRef(job="j-1"), api.Done()),
    "leave_job": (jobs_api.LeaveJob(job="j-1"), api.Done()),
    "lend": (jobs_api.Lend(job="j-1"), api.Launched(container="c-3", pid=4712, not_enforced={})),
    "submit": (api.Submit(job="j-1", monotasks=_MONOTASKS), api.Submitted(accepted=2)),
    "complete": (api.Complete(job="j-1", monotasks=[api.Completion(id=1)]), api.Done()),
    "cancel": (api.Cancel(job="j-1", ids=[2]), api.Done()),
    "place": (api.Place(job="j-1", stage="map", tasks=[_TASK]), api.Done()),
    "tasks_done": (api.TaskRefs(job="j-1", tasks=["m-1"]), api.Done()),
    "cancel_tasks": (api.TaskRefs(job="j-1", tasks=["m-1"]), api.Done()),
    "progress": (
        api.Progress(
            job="j-1",
            stages=[
                api.StageProgress(stage="map", tasks=8, done=6, usage=KindAmounts(cpu=2e6, disk=1e6)),
                api.StageProgress(stage="reduce", tasks=2, after=["map"]),
            ],
        ),
        api.Done(),
    ),
    "launch": (
        api.Launch(container=_SPEC),
        api.Launched(container="c-1", pid=4711, not_enforced={}),
    ),
    "adopt": (
        api.Adopt(pid=4711, container=ContainerSpec(argv=("postgres",), memory_bytes=256 << 20)),
        api.Launched(container="c-2", pid=4711, not_enforced={}),
    ),
    "resize": (
        api.Resize(container="c-1", limits={"cpu_cores": 1.5, "memory_max_bytes": None}),
        api.Resized(limits=Limits(cpu_cores=1.5), not_enforced={}),
    ),
    "follow": (
        api.Follow(container="c-1", profile=Profile(cpu_cores=(1.0, 2.0, 0.5), memory_bytes=(64 << 20, 128 << 20))),
        api.Done(),
    ),
    "attach": (api.ContainerRef(container="c-1"), api.Done()),
    "signal": (api.SignalContainer(container="c-1", signal=15), api.Done()),
    "kill": (api.ContainerRef(container="c-1"), api.Done()),
    "output": (api.ReadOutput(container="c-1"), api.Output(data=b"done\n", offset=0, size=5)),
    "status": (api.Nothing(), api.Status(status={"node": "alpha"})),
    "cluster_status": (overview_api.ClusterStatus(), api.Status(status={"nodes": {}, "jobs": {}})),
    "reserve": (reservation_api.Reserve(rdl=_RDL, name="nightly"), _RESERVED),
    "update_reservation": (reservation_api.UpdateReservation(reservation="r-1", rdl=_RDL), _RESERVED),
    "delete_reservation": (
        reservation_api.DeleteReservation(reservation="r-1"),
        reservation_api.Reservations(reservations=[]),
    ),
    "reservations": (
        reservation_api.ListReservations(),
        reservation_api.Reservations(reservations=[_RESERVED]),
    ),
    "drain": (
        cluster_api.DrainNodes(nodes=["alpha"]),
        cluster_api.Drains(
            nodes=[
                cluster_api.NodeDrain(
                    node="alpha",
                    state="draining",
                    draining=cluster_api.Draining("root", 1795000000.0),
                    remaining=[cluster_api.Remaining("command", "j-1/m-1", "wordcount", "eve")],
                    count=1,
                )
            ]
        ),
    ),
    "undrain": (
        cluster_api.UndrainNodes(nodes=["alpha"]),
        cluster_api.Drains(nodes=[cluster_api.NodeDrain(node="alpha", state="connected")]),
    ),
    "drains": (
        cluster_api.AskDrains(nodes=["alpha"]),
        cluster_api.Drains(nodes=[cluster_api.NodeDrain(node="alpha", state="drained")]),
    ),
}
REQUEST_EXAMPLES |= {
    "set_config": (
        config_api.SetConfig(values={"t_alloc": "0.8", "lease_s": "10ms"}),
        config_api.ConfigSet(
            changed=[
                config_api.ChangedKey(key="t_alloc", was="0.9", now="0.8"),
                config_api.ChangedKey(key="lease_s", was='"5ms"', now='"10ms"', stronger="$PENSTOCK_AGENT_LEASE_S"),
            ],
            host="alpha",
            file="/etc/penstock/agent.toml",
        ),
    ),
    "show_config": (
        config_api.ShowConfig(),
        config_api.ConfigInForce(
            keys={
                "t_alloc": config_api.KeyInForce(
                    value=0.8, written="0.8", source="file", where="/etc/penstock/agent.toml:2", default="0.9",
                    live=True, description="UBIS T_alloc: how far opportunistic work may fill the node",
                )
            },
            host="alpha",
            file="/etc/penstock/agent.toml",
        ),
    ),
}  # fmt: skip
REQUEST_EXAMPLES |= {
    "jobs": (
        jobs_api.ListJobs(jobs=["j-1", "j-0"]),
        jobs_api.Jobs(
            jobs=[
                jobs_api.JobView(
                    job="j-1", name="wordcount", user="eve", origin="alpha", state="running", submitted_at=1795000000.0,
                    stages=2, stages_done=1, tasks_running=2, tasks_done=8, nodes=["alpha", "beta"],
                    left=KindAmounts(cpu=2e6), service_container_s=41.0, rank=3, of=5,
                    reason="41 s of service so far, queue 8: no job like it is known", queue=8, known_jobs=0,
                    ranks=[
                        jobs_api.NodeRank(
                            node="alpha", rank=2, of=4, weight=12, service_container_s=30.0, before=["j-3"]
                        )
                    ],
                    progress=[
                        jobs_api.StageView(stage="map", tasks=8, done=8),
                        jobs_api.StageView(stage="reduce", tasks=2, done=0, after=["map"]),
                    ],
                )
            ],
            unknown=["j-0"],
        ),
    ),
    "cancel_job": (jobs_api.CancelJob(job="j-1"), jobs_api.Cancelling(job="j-1")),
    "order_jobs": (jobs_api.OrderJobs(jobs=["j-7", "j-1"]), jobs_api.JobsOrdered(jobs=["j-7", "j-1"], of_all=False)),
    "explain_job": (jobs_api.ExplainJob(job="j-1"), jobs_api.Explained(explained={"job": "j-1", "place": 1, "of": 2})),
}  # fmt: skip
#: Everything that a framework may ask.
REQUESTS = {
    **api.REQUESTS, **overview_api.REQUESTS, **reservation_api.REQUESTS, **cluster_api.REQUESTS, **config_api.REQUESTS,
    **jobs_api.REQUESTS, **jobs_api.OWN_REQUESTS,
}  # fmt: skip
NOTIFICATION_EXAMPLES: dict[str, api.Params] = {
    "grant": api.Grants(job="j-1", ids=[1]),
    "recall": api.Recall(job="j-1", kind=ResourceKind.CPU),
    "rejected": api.Rejected(
        job="j-1",
        ids=[1],
        error=ErrorBody(ErrorCode.BAD_REQUEST, "unknown job 'j-1'", "job", "register_job first"),
    ),
    "job_waiting": api.JobWaiting(job="j-1", why="it wants 2 GiB reserved, 1 GiB of 4 GiB is not reserved"),
    "job_admitted": api.JobRef(job="j-1"),
    "job_cancelled": jobs_api.CancelledBy(job="j-1", by="eve"),
    "slot_taken_back": jobs_api.SlotTakenBack(
        job="j-1",
        id=1,
        kind=ResourceKind.CPU,
        why="its cpu slot was held for 75 s, and job j-2 of another user had waited 31 s for its turn; "
        "slot_held_max_s is 60",
    ),
    "task_placed": api.TaskPlaced(job="j-1", task="m-1", node="alpha"),
    "task_ended": api.TaskEnded(job="j-1", task="m-1", node="alpha", ended=_ENDED),
    "task_stuck": api.TaskStuck(job="j-1", task="e-1", helper="e-2", node="beta"),
    "container_ended": api.ContainerEnded(container="c-1", ended=_ENDED),
}
#: Everything that an agent says unasked.
NOTIFICATIONS = {**api.NOTIFICATIONS, **jobs_api.NOTIFICATIONS}
#: What a method does, where its parameters' docstring is shared with others.
SAYS = {
    "end_job": "The job is over: its queued monotasks are gone, its slots are free, its placed tasks are withdrawn.",
    "tasks_done": "Placed tasks that the framework executed itself are done: what their nodes held for them is free.",
    "cancel_tasks": "Tasks that are no longer wanted, placed or not. Each is then answered by `task_ended`.",
    "attach": "Be told how a container ends (at once, if it has). One whose connection is gone becomes this one's.",
    "kill": "Kill all processes of a container; it ends by `cancelled`.",
    "status": "The status document, see below.",
    "job_waiting": "Why the master has not admitted the job yet; said again when the kind of reason changes. "
    "`never`: no nodes of the cluster can hold it.",
    "job_admitted": "The master has reserved memory for the job: it may ask for placements.",
}
#: What parameters and results are made of.
STRUCTURES: tuple[type[msgspec.Struct], ...] = (
    MonotaskSpec, api.Completion, api.Leased, TaskRequest, KindAmounts, api.StageProgress, ContainerSpec, Limits,
    Notice, Executor, Profile, Capacity, Ended, reservation_api.Reserved, reservation_api.PromisedPiece,
    reservation_api.FreeRun, cluster_api.NodeDrain, cluster_api.Draining, cluster_api.Remaining,
    config_api.ChangedKey, config_api.KeyInForce, jobs_api.JobView, jobs_api.StageView, jobs_api.TaskFailure,
    jobs_api.NodeRank, ErrorBody,
)  # fmt: skip
ENUMERATIONS: tuple[type[enum.StrEnum], ...] = (ResourceKind, Choice, Sizing, EndedBy, ErrorCode)


# ---------------------------------------------------------------- types and fields


def type_name(kind: Any) -> str:
    """How the page calls a type.

    Raises:
        TypeError: a type that no page names yet.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        of, meta = type_name(arguments[0]), kind.__metadata__[0]
        container, found, inside = of.partition(" of ")
        if container in _COUNTED and found:  # beside its word: those of what is inside come behind that
            return f"{container}{_bounds(meta, _COUNTED[container])} of {inside}"
        return f"{of}{_bounds(meta, 'characters')}"
    if origin in {typing.Union, types.UnionType}:
        return " or ".join(type_name(one) for one in arguments)
    if origin in {list, tuple}:
        return f"array of {_inside(arguments[0])}"
    if origin is typing.Literal:
        return " or ".join(f"`{json.dumps(one)}`" for one in arguments)
    if origin is dict:
        return f"map of {_inside(arguments[0])} to {_inside(arguments[1])}"
    plain = {int: "integer", float: "number", str: "string", bool: "boolean", bytes: "binary", type(None): "nil"}
    if kind in plain:
        return plain[kind]
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum | msgspec.Struct):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if kind is Any:
        return "any value"
    raise TypeError(f"no name for {kind!r}")


def _inside(kind: Any) -> str:
    """The type of what an array or a map has: in brackets where it is one of several."""
    name = type_name(kind)
    return f"({name})" if " or " in name else name


def _number(value: float) -> str:
    """A bound, with powers of two as such."""
    for exponent, less in ((63, 1), (31, 0), (22, 0)):
        if value == 2**exponent - less:
            return f"2{str(exponent).translate(_SUPERSCRIPTS)}{' − 1' if less else ''}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _bounds(meta: msgspec.Meta, counted: str) -> str:
    parts = []
    for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
        if (value := getattr(meta, name)) is not None:
            parts.append(f"{sign} {_number(value)}")
    if meta.max_length is not None:
        parts.append(f"{meta.min_length or 0}–{meta.max_length} {counted}")
    elif meta.min_length:
        parts.append("not empty")
    if meta.pattern is not None:
        parts.append(f"`{meta.pattern}`".replace("|", "\\|"))
    return f" ({', '.join(parts)})" if parts else ""


def fields_table(of: type[msgspec.Struct]) -> list[str]:
    """One row per field; nothing for a structure without fields."""
    fields = msgspec.structs.fields(of)
    if not fields:
        return []
    rows = [f"| `{field.encode_name}` | {_type(field)} | {_default(field)} |" for field in fields]
    return ["", "| field | type | default |", "|---|---|---|", *rows]


def _type(field: msgspec.structs.FieldInfo) -> str:
    name = type_name(field.type)
    return _OPEN_FIELDS[field.encode_name] if "any value" in name else name


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    if isinstance(field.default, msgspec.Struct):
        return "none set"
    if field.default in ("", ()):
        return "empty"
    return f"`{'nil' if field.default is None else str(field.default).lower()}`"


def prose(of: type) -> str:
    """A docstring as Markdown."""
    text = inspect.getdoc(of) or ""
    text = re.sub(r"``([^`]*)``", r"`\1`", re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text))
    for word, instead in _WORDS:
        text = re.sub(word, instead, text)
    return text


def _says(method: str, params: type) -> str:
    return SAYS.get(method) or prose(params)


def _bytes_block(*messages: tuple[str, bytes]) -> list[str]:
    lines = [
        f"{' ' if start else mark} {data[start : start + 32].hex(' ')}"
        for mark, data in messages
        for start in range(0, len(data), 32)
    ]
    return ["```hex", *lines, "```"]


def _plain(params: object) -> Any:
    """As it travels: maps, arrays, strings, numbers, bytes."""
    return msgpack.unpackb(msgpack.packb(to_wire(params)))


def literal(value: Any, indent: int = 0, taken: int = 0) -> str:
    """A value in Python, laid out as ``ruff format`` does; ``taken`` is what else stands on its first line."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes):
        return f"b{json.dumps(value.decode())}"
    if not isinstance(value, dict | list):
        return repr(value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    keys = [f"{literal(key)}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    inner = list(value.values()) if isinstance(value, dict) else value
    one_line = (
        opening
        + ", ".join(key + literal(one, taken=-10 * WIDTH) for key, one in zip(keys, inner, strict=True))
        + closing
    )
    if indent + taken + len(one_line) <= WIDTH:
        return one_line
    deeper = indent + 4
    rows = [f"{' ' * deeper}{key}{literal(one, deeper, len(key) + 1)},\n" for key, one in zip(keys, inner, strict=True)]
    return f"{opening}\n{''.join(rows)}{' ' * indent}{closing}"


def call_code(method: str, params: Any) -> str:
    """The call in Python; ``params`` None for a method without parameters."""
    name = literal(method)
    if params is None:
        return f"call({name})"
    one_line = literal(params, taken=-10 * WIDTH)
    for code in (f"call({name}, {one_line})", f"call(\n    {name}, {one_line}\n)"):
        if max(map(len, code.splitlines())) <= WIDTH:
            return code
    return f"call(\n    {name},\n    {literal(params, 4, 1)},\n)"


# ---------------------------------------------------------------- the parts


def requests() -> list[str]:
    """Every method of the agent."""
    lines = []
    for method, (params, result) in REQUESTS.items():
        asked, answered = REQUEST_EXAMPLES[method]
        _, request = RpcConnection().send_request(method, asked if type(asked).__struct_fields__ else None)
        response = RpcConnection().send_response(0, answered)
        code = call_code(method, _plain(asked) if type(asked).__struct_fields__ else None)
        lines += ["", f"### `{method}`", "", _says(method, params), *fields_table(params)]
        if type(answered).__struct_fields__:
            lines += ["", f"Result: {prose(result)}", *fields_table(result)]
        lines += ["", "```python", code, f"# → {_comment(answered)}", "```", ""]
        lines += _bytes_block(("→", request), ("←", response))
    return lines


def _comment(result: object) -> str:
    return literal(_plain(result), taken=4).replace("\n", "\n#   ")


def notifications() -> list[str]:
    """Every notification of the agent."""
    lines = []
    for method, params in NOTIFICATIONS.items():
        example = NOTIFICATION_EXAMPLES[method]
        data = RpcConnection().send_notification(method, example)
        lines += ["", f"### `{method}`", "", _says(method, params), *fields_table(params)]
        lines += ["", "```python", "next_notification()", f"# → {_comment([method, [_plain(example)]])}", "```", ""]
        lines += _bytes_block(("←", data))
    return lines


def structures() -> list[str]:
    """What the methods' parameters and results are made of."""
    lines = []
    for of in STRUCTURES:
        lines += ["", f"### {of.__name__}", "", prose(of), *fields_table(of)]
    for kinds in ENUMERATIONS:
        values = ", ".join(f"`{kind.value}`" for kind in kinds)
        lines += ["", f"### {kinds.__name__}", "", prose(kinds), "", f"A string: {values}"]
    return lines


def master() -> list[str]:
    """The master's methods, shorter."""
    lines = []
    for title, methods in (
        ("Agent → master", master_api.REQUESTS),
        ("Master → agent", master_api.MASTER_REQUESTS),
    ):
        lines += ["", f"### {title}", ""]
        for method, (params, result) in methods.items():
            lines.append(f"- **`{method}`** {_short(params)}{_answer(result)}")
        if methods is master_api.REQUESTS:
            calls = ", ".join(f"`{call}`" for call in reservation_api.CALLS)
            lines.append(f"- **`reservation`** {_short(reservation_api.OnBehalf)} Calls: {calls}; answers as to those.")
            calls = ", ".join(f"`{call}`" for call in cluster_api.REQUESTS)
            lines.append(f"- **`nodes`** Which nodes take work. Fields as of `reservation`. Calls: {calls}.")
            calls = ", ".join(f"`{call}`" for call in jobs_api.REQUESTS)
            lines.append(f"- **`jobs`** Jobs, of this user or all. Fields as of `reservation`. Calls: {calls}.")
            calls = ", ".join(f"`{call}`" for call in config_api.REQUESTS)
            lines.append(f"- **`configuration`** The master's own. Fields as of `reservation`. Calls: {calls}.")
    lines += ["", "### Decisions", "", "A map each; `do` says which.", ""]
    for decision in typing.get_args(master_api.AnyDecision):
        lines.append(f"- **`{decision.__struct_config__.tag}`** {_short(decision)}")
    return lines


def _short(of: type[msgspec.Struct]) -> str:
    names = ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(of))
    return f"{' '.join(prose(of).split())} Fields: {names}." if names else " ".join(prose(of).split())


def _answer(result: type[msgspec.Struct]) -> str:
    return f" Answer: {_short(result)}" if result.__struct_fields__ else ""


def updated(page: str) -> str:
    """The page with its generated parts renewed."""
    for name, part in (
        ("requests", requests),
        ("notifications", notifications),
        ("structures", structures),
        ("master", master),
    ):
        begin, end = f"<!-- {name}: written by docs/make_protocol.py -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"{PAGE}: the marks of {name} are missing")
        page = "\n".join([before + begin, *part(), "", end + after])
    return page


def main() -> int:
    """Exit status 1 if --check finds a difference."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = updated(page)
    if "--check" in sys.argv[1:]:
        if fresh != page:
            sys.stderr.write(f"{PAGE} is out of date; run python docs/make_protocol.py\n")
        return int(fresh != page)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
