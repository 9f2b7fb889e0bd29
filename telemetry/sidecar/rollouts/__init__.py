"""Staged rollouts that a sidecar evaluates: what is configured, the process that looks, and what is answered."""
