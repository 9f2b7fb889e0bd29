"""`voiceprobe calibrate`: errors of the instrument against an endpoint that knows the truth.

Read `calibration` first (the errors, pure), then `job` (the loads), `process_counts`, and `view`, `picture` and
`json_object` (the results).
"""
