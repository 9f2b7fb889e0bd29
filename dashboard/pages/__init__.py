"""One file a page, and one question a page: `ask` sends it, what is below draws the answer.

`now` first; then `turns` and `turn` (one of them), `cohorts` and `rollout`, `objectives`, `runs`, `cache`, and
`instrument`. A new page is a module with a `page`, made by `frame.run_page`, and a line in `dashboard/app.py`.
"""
