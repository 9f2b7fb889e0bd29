"""Charts as pictures: rows, a Vega-Lite specification that they fill, a sentence, and the same figures as a table.

Read `over_time`, `compared` (cohorts and runs) and `turns`; pure.
A specification holds no data and depends on what rarely changes: the browser keeps the picture over a refresh.
"""
