"""A page of Streamlit with the charts over time, each a few seconds later than the one before: run by its test."""

import pandas as pd
import streamlit as st

from dashboard.charts import style
from dashboard.charts.over_time import bars_spec, series_rows, series_spec

S = 1_000_000_000
FIRST_UNIX_NS = 1_800_000_000 * S
MOMENTS = 24
STEP_S = 5
BUCKETS = 40
WIDTH_NS = 7_500_000_000

for moment in range(MOMENTS):
    starts = [FIRST_UNIX_NS + moment * STEP_S * S + place * WIDTH_NS for place in range(BUCKETS)]
    rows = pd.DataFrame(series_rows(starts, {"a": [1.0] * BUCKETS, "b": [2.0] * BUCKETS}))
    for spec in (
        series_spec(style.LIGHT, ("a", "b"), "ms"),
        bars_spec(style.LIGHT, ("a", "b"), "turns", WIDTH_NS),
    ):
        st.vega_lite_chart(rows, spec, theme=None, width="stretch")
st.write("all drawn")
