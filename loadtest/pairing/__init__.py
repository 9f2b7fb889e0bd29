"""The same audio, said to several targets in turn: what differs between them, utterance by utterance.

Read `differences` first (pure: paired differences of a quantile, and when enough was said), then `job` (the sidecar,
the callers and the loop), then `view` (terminal and JSON). The callers are in `loadtest.swarm.paired_callers`.
"""
