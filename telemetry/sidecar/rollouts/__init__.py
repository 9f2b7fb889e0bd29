"""Staged rollouts that a sidecar evaluates.

To read in this order: `settings` (what is configured), `evaluation` (one look: the store is asked, the gate decides,
the log keeps the verdict), `thread` (when each is looked at), `routes` and `exposition` (what is answered over HTTP).
"""
