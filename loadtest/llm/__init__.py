"""Measures language models as the middle of a voice turn: `voiceprobe llm`.

Read `answers` first: what is asked and what came back, with every figure's one definition. `bodies` says
where a model is and how it is asked, `client` asks it over a `connection` and reads each `exchange`. `plan` and
`running` carry out a bench, `rows` and `voice` find its figures, `report` and `page` show them, `turns` stores
them, and `job` is the command. The wires themselves are in `loadtest.protocols.stages.llm_streams`, without sockets.
"""
