"""Metrics of turns and of the telemetry itself for `/metrics`, counted as it is stored by prometheus_client's metrics.

To read in this order: `text` (families, and a page of them), `histograms` (buckets of a turn's metrics), `label_values`
(the limits of labels), `turns` (what callers heard), `objectives` and `services` beside it, `sequence_numbers` (turns
that are missing), `state` (what the receivers counted).
"""
