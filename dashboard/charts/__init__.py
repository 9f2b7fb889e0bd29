"""Charts as Vega-Lite specifications, the rows that fill them, and the same figures as tables; pure.

Read `style` (colors, axes, what all charts share), then `over_time` (lines and bars), `turn_charts` (heat map and
waterfall), `differences` (two cohorts) and `run_charts` (several runs). A specification holds no data and depends on
what rarely changes: the browser keeps the picture over a refresh, and exchanges its rows.
"""
