"""Recognition, language model and synthesis over HTTP, each alone or as a cascade.

Read `parts` first (what responses say), then `reader` with `services` (what is asked of each stage), and `caller`.
`llm_streams` reads the answers of language models for the bench of `loadtest.llm`.
"""
