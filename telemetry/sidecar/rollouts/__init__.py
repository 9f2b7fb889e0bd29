"""Staged rollouts that a sidecar evaluates: `settings` (what is configured), `evaluation` (one look), `thread` with
`schedule` (when), `routes` and `exposition` (what is answered)."""
