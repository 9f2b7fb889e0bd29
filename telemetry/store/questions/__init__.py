"""What the store answers: one file a subject, each with the statements of its questions and the types of their answers.

A question is a function of a connection (one snapshot of the store) and of what is asked; `telemetry.store.reader`
names them all. Read `filters` first (which turns a question is about), then `summaries`, then any other.
"""
