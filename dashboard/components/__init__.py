"""Elements shared by several pages: HTML made of escaped text, and the Streamlit elements around it.

Read `markup` and `style.css`, then `frame` (how a page queries, draws and refreshes) with `selectors` (its row of
selectors) and `trust` (its first line and its chip). Then their content: `figures`, `objectives`, `verdicts`,
`one_turn`, `several_runs`.
"""
