"""The gate of a rollout: whether a candidate may get more callers. Pure.

Read: plan and plan_document (rollout.toml), gate (the rules), checks (one figure of both cohorts), then its statistics:
sequential (bounds at every look), shares, check_sample (clusters), quantile_intervals; completeness and cohort_turns
(the evidence); sentences and verdict (what a verdict says); progress and cohort_comparison (pages).
"""
