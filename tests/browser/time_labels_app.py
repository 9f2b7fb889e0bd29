"""A page of Streamlit with charts over time of many lengths, from seconds to hours: run by its test."""

from datetime import UTC

import streamlit as st

from dashboard.charts.over_time import Series, gauge_lines, latency_lines
from dashboard.components.pictures import draw
from dashboard.descriptions import time_of_day
from telemetry.charts.drawing import LIGHT
from telemetry.store.questions.timelines import CohortLine, CohortLines, LinePoint

S = 1_000_000_000
# In every zone some seconds before a full minute, and far from midnight in most.
FIRST_UNIX_NS = 1_799_999_975 * S
LENGTHS_S = (20, 45, 90, 150, 200, 211, 213, 240, 290, 296, 298, 330, 600, 3600, 5 * 3600)
POINTS = 10

for length_s in LENGTHS_S:
    starts = [FIRST_UNIX_NS + place * length_s * S // (POINTS - 1) for place in range(POINTS)]
    draw(gauge_lines(Series(f"Series {length_s}", starts, {"a": [1.0] * POINTS}, [["1"] * POINTS]), "ms", LIGHT, UTC))
    lines = CohortLines("voice_to_voice", S, [CohortLine("a", [LinePoint(start, 30, 1e6) for start in starts])])
    draw(latency_lines(lines, f"Latency {length_s}", LIGHT, time_of_day, objective_ms=None, missed_ns=None))
st.write("all drawn")
