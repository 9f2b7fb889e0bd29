"""Elements that several pages draw: HTML made of texts that are escaped, and Streamlit's elements around it.

Read `markup` and `style.css`, then `frame` (how a page asks, draws and refreshes) with `selectors` (its row) and
`trust` (its first line and its chip). Then what they show: `figures`, `objectives`, `verdicts`, `one_turn`,
`several_runs`.
"""
