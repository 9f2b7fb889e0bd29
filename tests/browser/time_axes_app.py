"""A page of Streamlit with the charts over time, each a few seconds later than the one before: run by its test."""

from datetime import UTC

import streamlit as st

from dashboard.charts.over_time import Series, count_bars, gauge_lines
from dashboard.components.pictures import draw
from telemetry.charts.drawing import LIGHT
from telemetry.store.questions.timelines import CountsOverTime

S = 1_000_000_000
FIRST_UNIX_NS = 1_800_000_000 * S
MOMENTS = 24
STEP_S = 5
BUCKETS = 40
WIDTH_NS = 7_500_000_000

for moment in range(MOMENTS):
    starts = tuple(FIRST_UNIX_NS + moment * STEP_S * S + place * WIDTH_NS for place in range(BUCKETS))
    counts = CountsOverTime(WIDTH_NS, starts, {"a": (1,) * BUCKETS, "b": (2,) * BUCKETS})
    series = Series(f"Series {moment}", starts, counts.counts, [["1"] * BUCKETS] * 2)
    draw(gauge_lines(series, "ms", LIGHT, UTC))
    draw(count_bars(f"Counts {moment}", counts, LIGHT, UTC))
st.write("all drawn")
