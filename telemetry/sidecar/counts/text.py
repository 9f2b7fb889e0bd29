"""Metric families in the text formats of Prometheus and OpenMetrics.

Written here and not by prometheus_client's registry, which makes several objects for each of the many lines.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client.utils import floatToGoString

from telemetry.sidecar.counts.histograms import Array, Buckets, Counts

OPENMETRICS_END: Final = "# EOF\n"
_ESCAPED: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family: its name without `_total`, its type, its meaning and the names of its labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()

    @property
    def shown_name(self) -> str:
        """The name of its series, or what they begin with."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def head(self, *, openmetrics: bool) -> str:
        """The lines before its samples."""
        name = self.name if openmetrics else self.shown_name
        text = self.text.replace("\\", "\\\\").replace("\n", "\\n")
        if openmetrics:
            text = text.replace('"', '\\"')
        return f"# HELP {name} {text}\n# TYPE {name} {self.kind}\n"

    def sample(self, labels: str, value: float) -> str:
        """The line of a counter or gauge; `labels` are as `label_text` gives them."""
        return f"{self.shown_name}{'{' if labels else ''}{labels}{'}' if labels else ''} {_number(value)}\n"


def with_families(page: bytes, parts: Callable[[bool], Iterable[str]]) -> bytes:
    """A page of metrics with further families behind its own. `parts` is called with whether it is OpenMetrics, whose
    pages have an end; without any text the page stays as it is."""
    end = OPENMETRICS_END.encode()
    openmetrics = page.endswith(end)
    text = "".join(parts(openmetrics)).encode()
    return page.removesuffix(end) + text + (end if openmetrics else b"")


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """Label names and values as they stand between the braces."""
    return ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in zip(names, values, strict=True))


def histogram_lines(family: Family, buckets: Buckets, labels: Sequence[str], counts: Counts) -> Iterator[str]:
    """The lines of a histogram, those of one combination of labels at a time; without those that counted nothing.

    Exemplars are written where `counts` has them.
    """
    suffixes = [f',le="{bound}"}} ' for bound in (*buckets.bounds, "+Inf")]
    for row, text in enumerate(labels):
        cumulative: list[int] = counts.buckets[row].cumsum().tolist()
        if not cumulative[-1]:
            continue
        start = f"{family.name}_bucket{{{text}"
        if counts.trace_ids.size:
            exemplars = _exemplars(counts.trace_ids[row], counts.values[row], counts.unix_s[row])
            lines = [
                f"{start}{suffix}{count}{exemplar}\n"
                for suffix, count, exemplar in zip(suffixes, cumulative, exemplars, strict=True)
            ]
        else:
            lines = [f"{start}{suffix}{count}\n" for suffix, count in zip(suffixes, cumulative, strict=True)]
        lines.append(f"{family.name}_count{{{text}}} {cumulative[-1]}\n")
        lines.append(f"{family.name}_sum{{{text}}} {_number(counts.sums[row])}\n")
        yield "".join(lines)


def _exemplars(trace_ids: Array, values: Array, unix_s: Array) -> list[str]:
    return [
        f' # {{trace_id="{trace_id.decode()}"}} {_number(value)} {at_s:.3f}' if trace_id else ""
        for trace_id, value, at_s in zip(trace_ids.tolist(), values.tolist(), unix_s.tolist(), strict=True)
    ]


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else floatToGoString(value)
