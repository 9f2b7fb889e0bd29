"""`voiceprobe calibrate`: errors of the instrument against an endpoint that knows the truth.

Read `calibration` first (the errors, and how many processes a load wants; pure), then `job` (the loads), and `view`
and `json_object` (the results).
"""
