"""The store: one DuckDB file in a folder, written by one process, and the questions that are asked of it.

Read `schema` (what a row is) and `database` (the file, and who owns it) first, then `writer`, which commits, keeps
identities and joins both sides of a turn (`pairing`), and `retention`. To read: `connection`, `questions` (a file a
subject), `answers`, `wire` (a question here and as it travels) and `reader`, the one interface for all readers.
`rollout_rows` is what was decided on rollouts. Beside the file lie `recordings`; a run's folder is in `run_folders`.
`export` carries a store from one version to the next; `dialect` says what ClickHouse calls the functions of questions.
"""
