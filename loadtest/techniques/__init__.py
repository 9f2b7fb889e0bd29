"""Measurement of each latency technique on the reference assistant, with the same audio.

Read `catalog` first (the techniques, each an option of the assistant, with what is real about it), then `job` (two
assistants and `loadtest.pairing` for each row, kept so that it can be resumed), `labels` (what labeled lists say of
caches by similarity, routes and privacy), then `view` (table, page).
"""
