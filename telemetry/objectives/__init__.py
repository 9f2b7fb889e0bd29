"""Objectives: promises about turns, and verdicts on whether they are kept. Pure.

Read: objective (one promise), openslo (its file), judgment (the one function that judges a turn), slo (verdicts),
run_verdict (the sentence on a run), error_budgets; then what Prometheus gets: series, rules, exports. observable
chooses the built-in objectives that a wire can show.
"""
