"""One file and one question per page: `ask` sends the question, and the functions below it draw the answer.

`now` first; then `turns` and `turn` (one of them), `cohorts` and `rollout`, `objectives`, `runs`, `cache`, and
`instrument`. A new page is a module with a `page`, made by `frame.run_page`, and a line in `dashboard/app.py`.
"""
