"""Reports of a run: terminal, JSON, HTML, JUnit and Markdown, from one summary. Pure.

Read `run_info` and `run_report` first (what all of them are given), then `judged_objectives`, `tables` and `rows` (what
may be claimed, and how it is written), then the formats: `terminal`, `summary`, `html`, `junit`, `markdown`.
"""
