"""The list of all runs, from their folders, stores and sidecars.

Read `entries` first (a run as the list shows it), then `places` (where runs are, and what the folder of a run holds),
`summaries` (a run from the summary in its folder), `catalog` (the list, and which run a name means), and `changes`
(notes, removal).
"""
