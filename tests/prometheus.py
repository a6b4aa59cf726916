"""Prometheus' judgement: of a page of metrics (as ``promtool check metrics`` gives it), and of an expression."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# ---------------------------------------------------------------- a page of metrics

_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_ABBREVIATED = _words("""
    s ms us ns sec secs b kb mb gb kib mib gib h hr min mins pct
""")
_NOT_BASE = _words("""
    milliseconds microseconds nanoseconds minutes hours days kilobytes megabytes gigabytes kibibytes mebibytes
    gibibytes bits percent percents
""")
_TYPES = _words("""
    gauge counter histogram summary untyped
""")


@dataclass
class Exposed:
    """A metric as a page has it: its type, and the values of each label."""

    kind: str
    labels: dict[str, set[str]] = field(default_factory=dict)


def exposed(page: str) -> dict[str, Exposed]:
    """Every series' name, as an expression writes it."""
    found: dict[str, Exposed] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            one = found.setdefault(sample.name, Exposed(family.type))
            for name, value in sample.labels.items():
                one.labels.setdefault(name, set()).add(value)
    return found


def faults(page: str) -> list[str]:
    """Return the faults of a page of metrics."""
    return [*_declared_once(page), *(fault for family in text_string_to_metric_families(page) for fault in _of(family))]


def _declared_once(page: str) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for line in page.splitlines():
        if line.startswith("# "):
            _, what, name, *_ = line.split(" ", 3)
            if (what, name) in seen:
                yield f"{name}: {what} twice"
            seen.add((what, name))
    series = [line.rpartition(" ")[0] for line in page.splitlines() if line and not line.startswith("#")]
    yield from (f"{one}: twice" for one in sorted({one for one in series if series.count(one) > 1}))


def _of(family: object) -> Iterator[str]:
    name, kind, text = family.name, family.type, family.documentation  # type: ignore[attr-defined]
    words = name.split("_")
    full = f"{name}_total" if kind == "counter" else name
    if not text.strip():
        yield f"{full}: no HELP"
    if kind in {"unknown", "untyped"}:
        yield f"{full}: no TYPE"
    if not _SNAKE.fullmatch(name):
        yield f"{full}: not snake_case"
    if words[0] != "penstock":
        yield f"{full}: does not begin with penstock_"
    yield from (f"{full}: {word} is an abbreviation" for word in words if word in _ABBREVIATED)
    yield from (f"{full}: {word} is no base unit" for word in words if word in _NOT_BASE)
    yield from (f"{full}: the type is in the name" for word in words if word in _TYPES)
    if kind != "counter" and name.endswith("_total"):
        yield f"{full}: only counters end with _total"
    if kind not in {"histogram", "summary"} and name.endswith(("_count", "_sum", "_bucket")):
        yield f"{full}: only histograms have such a series"
    for sample in family.samples:  # type: ignore[attr-defined]
        if kind == "counter" and not sample.name.endswith("_total"):
            yield f"{sample.name}: counters end with _total"
        for label in sample.labels:
            if not _SNAKE.fullmatch(label):
                yield f"{full}: the label {label} is not snake_case"
            if label in {"le", "quantile"} and kind not in {"histogram", "summary"}:
                yield f"{full}: the label {label} is for histograms"


# ---------------------------------------------------------------- an expression

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<duration>\d+(?:ms|[smhdwy])(?:\d+(?:ms|[smhdwy]))*|\$__(?:rate_interval|interval|range))
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)
    |(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    |(?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^<>={}()\[\],:]))""",
    re.VERBOSE,
)
_GROUPING = _words("""
    by without on ignoring group_left group_right
""")
_OPERATORS = _words("""
    and or unless bool offset
""")
FUNCTIONS = _words("""
    abs absent absent_over_time avg avg_over_time bottomk ceil changes clamp clamp_max clamp_min count
    count_over_time delta deriv floor group histogram_quantile increase irate label_replace last_over_time max
    max_over_time min min_over_time predict_linear quantile rate resets round scalar sort stddev sum sum_over_time
    time topk vector
""")
_CLOSES = {"(": ")", "{": "}", "[": "]"}


class ExpressionError(Exception):
    """Where an expression is none."""


@dataclass
class Used:
    """The names in an expression: metric → label → the values that it is compared with; and the labels it groups by."""

    metrics: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    grouped: set[str] = field(default_factory=set)


def used(expression: str) -> Used:
    """Raises ExpressionError."""
    found = Used()
    placed = list(_placed(expression))
    metric, grouping_at = "", 0
    for (kind, text, within), (_, after, _), (after_kind, value, _) in zip(
        placed, placed[1:], placed[2:], strict=False
    ):
        if kind != "name":
            continue
        if within.endswith("{"):
            if after not in {"=", "!=", "=~", "!~"} or after_kind != "string":
                raise ExpressionError(f"{expression}: {text} is held against nothing")
            found.metrics[metric].setdefault(text, set()).add(value[1:-1])
        elif text in _GROUPING:
            grouping_at = len(within) + 1 if after == "(" else 0
        elif grouping_at and len(within) == grouping_at:
            found.grouped.add(text)
        elif after in {"(", "by", "without"} or text in _OPERATORS:
            if text not in FUNCTIONS | _OPERATORS:
                raise ExpressionError(f"{expression}: no function {text}")
        else:
            metric = text
            found.metrics.setdefault(metric, {})
        grouping_at = grouping_at if text in _GROUPING or after == "," else 0
    if not found.metrics:
        raise ExpressionError(f"{expression}: names no metric")
    return found


def _placed(expression: str) -> Iterator[tuple[str, str, str]]:
    """The tokens: kind, text, and the brackets that are open around it; then two that are nothing."""
    within = ""
    for kind, text in _tokens(expression):
        if text in _CLOSES.values() and kind == "sign":
            if not within or _CLOSES[within[-1]] != text:
                raise ExpressionError(f"{expression}: {text} closes nothing")
            within = within[:-1]
        yield kind, text, within
        if text in _CLOSES:
            within += text
    if within:
        raise ExpressionError(f"{expression}: {_CLOSES[within[-1]]} is missing")
    yield from (("", "", ""), ("", "", ""))


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    at = 0
    text = expression.strip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ExpressionError(f"{expression}: {text[at:][:20]!r} is not understood")
        at = token.end()
        yield str(token.lastgroup), token[str(token.lastgroup)]
