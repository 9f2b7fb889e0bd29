"""Staged rollouts that a sidecar evaluates.

To read in this order: `settings` (what is configured), `rollout_log` (the decisions as rows of the store, by one
writer), `evaluation` (one look: the store is queried, the gate decides, the verdict is stored), `states` (when each
rollout is evaluated), `routes` (the answers over HTTP).
"""
