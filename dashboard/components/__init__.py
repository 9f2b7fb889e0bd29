"""Elements that several pages draw: HTML made of texts that are escaped, and Streamlit's elements around it.

Read `markup` and `style.css`, then `frame` with `refreshing` and `selectors` (the row of a page), `header` and `trust`
(its first line and its chip). Then figures: `objectives`, `tiles`, `tables`, `bars`, `explanation`, `verdicts`; `chart`
draws a picture of `dashboard/charts` with its figures as a table.
"""
