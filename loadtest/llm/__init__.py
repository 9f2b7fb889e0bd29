"""Measures language models as the middle of a voice turn: `voiceprobe llm`.

Read `answers` first: what is asked and what came back, with every figure's one definition. `target` says where a model
is and in which wire it speaks, `client` asks and takes the times, `network` measures the way there without the model.
The wires themselves are in `loadtest.protocols.llm_stream`, without sockets.
"""
