"""The list of all runs, from their folders, stores and sidecars.

Read `entries` first (a run in the list), then `places` (the places of runs, and the content of a run's folder),
`summaries` (a run from the summary in its folder), `catalog` (the list, and the run that a name refers to),
`compared_entries` (runs of the list compared) and `changes` (notes, removal).
"""
