"""Export from a process to a sidecar: the OpenTelemetry SDK set up, the instrumentation, and the log of undelivered
data.

Read: sdk (set-up), instrumentation (calls, turns, runs, gauges), encoded_spans (OTLP), span_processor (delivery),
span_log (the log on disk, and its replay), otlp_http (one request).
"""
