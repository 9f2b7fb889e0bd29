"""The store: one DuckDB file in a folder, written by one process, and the questions that it answers.

Read `schema` (the rows) and `database` (the file, and its owner) first, then `writer`, which removes what may not be
stored (`redaction`), tracks identities (`identity`) and pairs both sides of a turn (`pairing`), and `retention`. To
read: `connection`, `questions` (one file per subject), `answers`, `wire` (a question in this process and on the wire)
and `reader`, the one interface for all readers. `rollout_rows` has the decisions on rollouts. Next to the file are the
`recordings`; the folder of a run is in `run_folders`. `export` moves a store from one version to the next, `check`
reads all of it; `dialect` has ClickHouse's names for the functions in questions.
"""
