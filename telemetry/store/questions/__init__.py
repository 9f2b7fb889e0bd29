"""Questions to the store: one file per subject, each with the statements of its questions and the types of their
answers.

A question is a function of a connection (one snapshot of the store, queried at one time) and of its parameters;
`telemetry.store.reader` names them all. Read `filters` first (the turns that a question is about) and `percentiles`
(exact ones and estimates), then `summaries`, then `pages`, then any other.
"""
