"""Recognition, language model and synthesis over HTTP, each alone or as a cascade.

Read `wires` first, then `requests` and `reader` with `asr`, `llm` and `tts`, and `caller`.
"""
