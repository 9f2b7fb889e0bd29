"""Staged rollouts that a sidecar evaluates.

To read in this order: `settings` (what is configured), `rollout_log` (the one who decides, and keeps it as rows),
`evaluation` (one look: the store is asked, the gate decides, the verdict is kept), `states` (when each is looked at),
`routes` (what is answered over HTTP).
"""
