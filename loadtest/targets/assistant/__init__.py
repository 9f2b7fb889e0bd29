"""The reference voice assistant: an endpoint whose timing is known.

Read `config` first (every setting) and `interfaces` (what engines are), then `server` and `session` (one call), `turn`,
`answering` and `reply` (one answer), and `engines`, which chooses among `scripted`, `llm`, `http_llm`, `cache` and the
`workers` of `real`.
"""
