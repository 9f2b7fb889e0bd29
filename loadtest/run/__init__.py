"""The commands about a run: `run`, `demo`, `report`, `compare`, `runs`, `deliver` and the store.

Read `request` first (what was asked, checked before anything starts), then `job` (sidecar, swarm, live view),
`judged_run` (the run from its store), `processes` and `sidecars`.
"""
