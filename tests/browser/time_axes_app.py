"""A page of Streamlit with charts over time, each a few seconds later than the one before, and of many lengths, from
seconds to hours: run by its test."""

from dataclasses import replace
from datetime import UTC
from typing import Final

import streamlit as st

from dashboard.charts import count_bars, draw, gauge_lines, latency_lines
from dashboard.descriptions import time_of_day
from telemetry.model.generator_health import GAUGES
from telemetry.store.questions.instrument import GaugeSeries
from telemetry.store.questions.timelines import CohortLine, CohortLines, CountsOverTime, LinePoint

S: Final = 1_000_000_000
MOMENTS, STEP_S, BUCKETS, WIDTH_NS = 24, 5, 40, 7_500_000_000
# In every zone some seconds before a full minute, and far from midnight in most.
FIRST_UNIX_NS: Final = 1_799_999_975 * S
LENGTHS_S: Final = (20, 45, 90, 150, 200, 211, 213, 240, 290, 296, 298, 330, 600, 3600, 5 * 3600)
POINTS: Final = 10
LAG: Final = "loop_lag_worst_ns"


def drawn_lags(starts: tuple[int, ...]) -> None:
    picture = gauge_lines(GAUGES[LAG], GaugeSeries(LAG, WIDTH_NS, starts, {"a": (1e6,) * len(starts)}, 1), UTC)
    draw(replace(picture, table=replace(picture.table, caption=f"lags from {starts[0]} to {starts[-1]}")))


if st.query_params.get("of") == "moments":
    for moment in range(MOMENTS):
        begin = 1_800_000_000 * S + moment * STEP_S * S
        starts = tuple(begin + place * WIDTH_NS for place in range(BUCKETS))
        drawn_lags(starts)
        counts = CountsOverTime(WIDTH_NS, starts, {"a": (1,) * BUCKETS, "b": (2,) * BUCKETS})
        draw(count_bars(f"Counts {moment}", counts, UTC))
else:
    for length_s in LENGTHS_S:
        starts = tuple(FIRST_UNIX_NS + place * length_s * S // (POINTS - 1) for place in range(POINTS))
        drawn_lags(starts)
        lines = CohortLines("voice_to_voice", S, [CohortLine("a", [LinePoint(start, 30, 1e6) for start in starts])])
        draw(latency_lines(lines, f"Latency {length_s}", time_of_day, objective_ms=None, missed_ns=None))
st.write("all drawn")
