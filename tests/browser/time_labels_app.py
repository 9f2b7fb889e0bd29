"""A page of Streamlit with charts over time of many lengths, from seconds to hours: run by its test."""

import pandas as pd
import streamlit as st

from dashboard.charts import style
from dashboard.charts.over_time import lines_spec, series_rows, series_spec

S = 1_000_000_000
# In every zone some seconds before a full minute, and far from midnight in most.
FIRST_UNIX_NS = 1_799_999_975 * S
LENGTHS_S = (20, 45, 90, 150, 200, 211, 213, 240, 290, 296, 298, 330, 600, 3600, 5 * 3600)
POINTS = 10

for length_s in LENGTHS_S:
    starts = [FIRST_UNIX_NS + place * length_s * S // (POINTS - 1) for place in range(POINTS)]
    series = pd.DataFrame(series_rows(starts, {"a": [1.0] * POINTS}))
    st.vega_lite_chart(series, series_spec(style.LIGHT, ("a",), "ms"), theme=None, width="stretch")
    rows = pd.DataFrame(
        [
            {"time": start / 1e6, "cohort": "a", "value": 1.0, "n": 30, "value_text": "", "from_text": "",
             "to_text": "", "onset_text": None}
            for start in starts
        ]
    )  # fmt: skip
    spec = lines_spec(style.LIGHT, ("a",), None, is_dark=False)
    st.vega_lite_chart(rows, spec, theme=None, width="stretch")
st.write("all drawn")
