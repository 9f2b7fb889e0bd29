"""Answers of language models as streams of events, on the wires of OpenAI, Anthropic and Gemini. Bytes in; no socket.

Read `heard` first, which collects what an answer said, in which counts, then `openai`, the best known wire, then
`anthropic` and `gemini`. Heads, refusals and the event stream itself are read by `loadtest.protocols.stages`, which
the callers of a voice use too.
"""
