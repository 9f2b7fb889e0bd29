"""Export from a process to a sidecar: the OpenTelemetry SDK set up, the instrumentation, and one log of what is not
delivered.

Read: sdk (set-up), instrumentation (calls, turns, runs, gauges), encoded_spans (OTLP), span_processor (delivery),
span_log (the log on disk, and its replay), otlp_http (one request).
"""
