"""Dataflows that several tests of this folder carry out."""

from __future__ import annotations

from penstock.opgraph.dataflow import OpGraph, Plan, plan


def same(*values: object) -> object:
    return values


def word_count(scale: int = 1, memory_to_input: float = 2.0) -> Plan:
    """Two files of 100 and 300 bytes that are 4 times as much unpacked; words are sent to two partitions."""
    graph = OpGraph()
    packed = graph.create_input(["a", "b"], [100 * scale, 300 * scale])
    raw, sent, pulled, result = (graph.create_data(2, name) for name in ("raw", "sent", "pulled", "result"))
    read = graph.create_op("disk", "read").read(packed).create(raw).set_access(same).estimate(expansion=4)
    send = graph.create_op("cpu", "send").read(raw).create(sent).set_udf(same)
    pull = graph.create_op("network", "pull").read(sent).create(pulled)
    merge = graph.create_op("cpu", "merge").read(pulled).create(result).set_udf(same)
    merge.estimate(memory_to_input=memory_to_input)
    read.to(send)
    send.to(pull, "sync")
    pull.to(merge)
    return plan(graph, [result])
