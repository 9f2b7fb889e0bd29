"""Endpoints to call, each a process of its own: `assistant` is the reference, `ground_truth` knows when it
answered."""
