"""Metrics of turns and of the telemetry itself for `/metrics`, counted as data is stored, with prometheus_client.

To read in this order: `families` (the metrics), `exposition` (what a turn adds to them, and the page), `objectives`,
`label_values` (the limits of labels), `sequence_numbers` (turns that are missing), `state` (the counts of the
receivers).
"""
