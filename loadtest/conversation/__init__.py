"""One caller's conversation, pure: moments are parameters, and actions are data that the engine carries out.

Read `state` first (the tables by which a conversation changes), then `plan` and `exchange` (what is to be spoken
and what comes of it), `conversation`, `hearing` and `playout` (what the caller hears and when), and `record` with
`evidence` (the turn, and how well it was measured).
"""
