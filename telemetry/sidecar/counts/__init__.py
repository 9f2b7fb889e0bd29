"""Metrics of turns and of the telemetry itself for `/metrics`, counted as it is stored by prometheus_client's metrics.

To read in this order: `families` (what there is to see), `exposition` (what a turn adds to them, and the page),
`objectives`, `label_values` (the limits of labels), `sequence_numbers` (turns that are missing), `state`
(what the receivers counted).
"""
