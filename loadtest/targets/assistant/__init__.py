"""The reference voice assistant: an endpoint whose timing is known.

Read `config` first (every setting), then `server` and `session` (one call), `turn` (one answer) and `engines`,
which chooses among `asr`, `llm`, `tts`, `cache` and the models of `real`.
"""
