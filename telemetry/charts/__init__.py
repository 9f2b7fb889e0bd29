"""Charts: rows in, a Vega-Lite specification out; dashboard pages, HTML reports and documents draw with them.

Read `drawing` (colors, axes, what all charts share), then `forest` (estimates with intervals), `over_time`, `compared`,
`run` and `turns`; `static` makes SVG of a picture, for files that are opened without a network. Pure.
A specification holds no data and depends on what rarely changes: the browser keeps the picture over a refresh.
"""
