"""The primitives of Ursa §4.1.1, and the errors on graphs that cannot be executed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.opgraph.checking import check
from penstock.opgraph.dataflow import Data, Dependency, Op, OpGraph, OpGraphError, Take, plan
from tests.unit.penstock.opgraph.flows import same


class Flow(OpGraph):
    """A graph with short ways to make operations."""

    def source(self, name: str = "source", partitions: int = 2) -> tuple[Op, Data]:
        given = self.create_input([0] * partitions, [10] * partitions)
        data = self.create_data(partitions, name)
        return self.create_op("cpu", name).read(given).create(data).set_udf(same), data

    def cpu(self, name: str, data: Data, partitions: int = 2) -> tuple[Op, Data]:
        made = self.create_data(partitions, name)
        return self.create_op("cpu", name).read(data).create(made).set_udf(same), made


def test_the_example_of_the_paper_in_the_same_words() -> None:
    dag = OpGraph()
    this = dag.create_data(3)
    creator = dag.create_op("cpu").read(dag.create_input([0] * 3, [1] * 3)).create(this).set_udf(same)
    message, shuffled, result = dag.create_data(3), dag.create_data(2), dag.create_data(2)
    ser = dag.create_op("cpu").read(this).create(message).set_udf(same)
    shuffle = dag.create_op("network").read(message).create(shuffled)
    deser = dag.create_op("cpu").read(shuffled).create(result).set_udf(same)
    creator.to(ser, Dependency.ASYNC)
    ser.to(shuffle, Dependency.SYNC)
    shuffle.to(deser, Dependency.ASYNC)
    checked = check(dag)
    assert [each.partitions for each in checked.ops] == [3, 3, 2, 2]
    takes = [read.take for each in checked.ops for read in each.inputs]
    assert takes == [Take.OWN, Take.OWN, Take.PART, Take.OWN]
    assert checked.last(result).writer is deser
    assert list(checked.parts.values()) == [2]


def test_a_read_after_an_update_is_of_the_updated_dataset() -> None:
    flow = Flow()
    source, data = flow.source()
    early, _ = flow.cpu("early", data)
    source.to(early)
    update = flow.create_op("cpu", "update").update(data).set_udf(same)
    early.to(update)
    source.to(update)
    late, _ = flow.cpu("late", data)
    update.to(late)
    checked = {each.op.name: each for each in check(flow).ops}
    assert checked["early"].inputs[0].version == checked["update"].inputs[0].version == checked["source"].outputs[0]
    assert checked["late"].inputs[0].version == checked["update"].outputs[0]
    assert checked["late"].inputs[0].version != checked["early"].inputs[0].version


def two(flow: Flow) -> tuple[Op, Data, Op, Data]:
    one, data = flow.source()
    other, made = flow.cpu("other", data)
    one.to(other)
    return one, data, other, made


def nothing(flow: Flow) -> None:
    pass


def circle(flow: Flow) -> None:
    one, _, other, made = two(flow)
    third, _ = flow.cpu("third", made)
    other.to(third)
    third.to(one, "sync")


def no_dependency(flow: Flow) -> None:
    _, data = flow.source()
    flow.cpu("other", data)


def too_early(flow: Flow) -> None:
    late, data = flow.source("late")
    other, _ = flow.cpu("other", data)
    other.to(late)


def not_next(flow: Flow) -> None:
    _, data, other, made = two(flow)
    third, _ = flow.cpu("third", made)
    third.read(data)
    other.to(third)


def two_creators(flow: Flow) -> None:
    _, data = flow.source()
    given = flow.create_input([0] * 2, [1] * 2)
    flow.create_op("cpu", "again").read(given).create(data).set_udf(same)


def unordered_updates(flow: Flow) -> None:
    source, data = flow.source()
    for name in ("u1", "u2"):
        source.to(flow.create_op("cpu", name).update(data).set_udf(same))


def unordered_reader(flow: Flow) -> None:
    source, data = flow.source()
    reader, _ = flow.cpu("reader", data)
    source.to(reader)
    source.to(flow.create_op("cpu", "update").update(data).set_udf(same))


def update_of_nothing(flow: Flow) -> None:
    flow.create_op("cpu", "update").update(flow.create_data(2, "d")).set_udf(same)


def async_of_other_width(flow: Flow) -> None:
    source, data = flow.source()
    other, _ = flow.cpu("other", data, 3)
    source.to(other)


def own_of_other_width(flow: Flow) -> None:
    source, data = flow.source()
    other, _ = flow.cpu("other", data, 3)
    source.to(other, "sync")


def parts_without_barrier(flow: Flow) -> None:
    source, data = flow.source()
    pull = flow.create_op("network", "pull").read(data, Take.PART).create(flow.create_data(2))
    source.to(pull)


def parts_of_an_input(flow: Flow) -> None:
    given = flow.create_input([0] * 2, [1] * 2, "given")
    flow.create_op("network", "pull").read(given, Take.PART).create(flow.create_data(2))


def different_parts(flow: Flow) -> None:
    source, data = flow.source()
    for name, width in (("n1", 2), ("n2", 3)):
        pull = flow.create_op("network", name).read(data).create(flow.create_data(width))
        source.to(pull, "sync")


def no_function(flow: Flow) -> None:
    flow.create_op("cpu", "idle").read(flow.create_input([0], [1])).create(flow.create_data(1))


def no_access(flow: Flow) -> None:
    flow.create_op("disk", "idle").read(flow.create_input([0], [1])).create(flow.create_data(1))


def makes_nothing(flow: Flow) -> None:
    flow.create_op("cpu", "sink").read(flow.create_input([0], [1])).set_udf(same)


def makes_two_widths(flow: Flow) -> None:
    op = flow.create_op("cpu", "odd").set_udf(same)
    op.create(flow.create_data(1, "a")).create(flow.create_data(2, "b"))


def network_of_two(flow: Flow) -> None:
    one, data, other, made = two(flow)
    pull = flow.create_op("network", "pull").read(data).read(made).create(flow.create_data(2))
    one.to(pull, "sync")
    other.to(pull, "sync")


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (nothing, "there is no operation to carry out"),
        (circle, "circle: source → other → third → source"),
        (no_dependency, r"operation 'other' reads 'source', which 'source' makes; say source.to\(other\) or other.to"),
        (too_early, "operation 'other' reads 'late', which no operation before it creates"),
        (not_next, r"operation 'third' reads 'source' of 'source'; say source.to\(third\)"),
        (two_creators, "operation 'again': 'source' is created by 'source' already"),
        (unordered_updates, "operation 'u2' and 'u1' update 'source' in no order"),
        (unordered_reader, "operation 'reader' reads 'source', which 'update' makes; say update.to"),
        (update_of_nothing, "operation 'update' updates 'd' before any operation creates it"),
        (async_of_other_width, "operation 'other' has 3 partitions and 'source' 2: an async dependency is one to one"),
        (own_of_other_width, "operation 'other' has 3 partitions, but 'source', of which each takes its own, 2"),
        (parts_without_barrier, "operation 'pull' takes from every partition of 'source': .* must be sync"),
        (parts_of_an_input, "operation 'pull' takes parts of 'given', an input"),
        (different_parts, "operation 'n2' takes 3 parts of 'source', and another operation 2"),
        (no_function, r"operation 'idle': a cpu operation needs its function \(set_udf\)"),
        (no_access, r"operation 'idle': a disk operation needs its function \(set_access\)"),
        (makes_nothing, "operation 'sink' neither creates nor updates"),
        (makes_two_widths, "operation 'odd' makes datasets of different numbers of partitions: 'a' 1, 'b' 2"),
        (network_of_two, "operation 'pull': a network operation reads one dataset and creates one"),
    ],
)
def test_a_graph_that_cannot_be_executed_is_refused_in_one_line(build: Callable[[Flow], None], says: str) -> None:
    flow = Flow()
    build(flow)
    with pytest.raises(OpGraphError, match=says) as error:
        plan(flow, flow.data[-1:])
    assert "\n" not in str(error.value)


def misuses() -> list[tuple[Callable[[], object], str]]:
    flow, other = Flow(), Flow()
    op, data = flow.source("mine")
    theirs, their_data = other.source("theirs")
    pull = flow.create_op("network", "pull")
    given = flow.create_input([0], [1], "given")
    after, _ = flow.cpu("after", data)
    op.to(after)
    return [
        (lambda: op.read(their_data), "'mine': 'theirs' is a dataset of another graph"),
        (lambda: op.update(their_data), "dataset of another graph"),
        (lambda: op.to(theirs), "'theirs' is of another graph than 'mine'"),
        (lambda: op.to(op), "'mine' cannot depend on itself"),
        (lambda: op.to(after), "'after' depends on 'mine' already"),
        (lambda: op.to(pull, "maybe"), "'mine': a dependency is 'sync' or 'async', not 'maybe'"),
        (lambda: op.create(given), "'mine' creates 'given', which is an input"),
        (lambda: pull.set_udf(same), "'pull': only a CPU operation computes"),
        (lambda: op.set_access(same), "'mine': only a disk operation"),
        (lambda: op.estimate(memory_to_input=0), "'mine': memory_to_input must be a positive number, not 0"),
        (lambda: op.estimate(expansion=float("nan")), "'mine': expansion must be a positive number, not nan"),
        (lambda: flow.create_op("gpu", "fast"), "'fast': 'gpu' is no kind of resource; those are cpu, disk, network"),
        (lambda: flow.create_data(0, "none"), "'none' needs at least one partition, not 0"),
        (lambda: flow.create_input([], []), "needs at least one partition, not 0"),
        (lambda: flow.create_input([1], [1, 2]), "1 partition, but 2 sizes"),
        (lambda: flow.create_input([1], [-1]), "must not be negative: -1"),
        (lambda: plan(flow, [given]), "'pull' neither creates nor updates"),
    ]


@pytest.mark.parametrize("number", range(len(misuses())))
def test_misuse_is_refused_at_once(number: int) -> None:
    misuse, says = misuses()[number]
    with pytest.raises(OpGraphError, match=says):
        misuse()


def test_an_input_alone_is_no_result() -> None:
    flow = Flow()
    flow.source()
    with pytest.raises(OpGraphError, match="'input0' is wanted, but no operation creates it"):
        plan(flow, [flow.data[0]])
