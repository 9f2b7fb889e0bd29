"""Audio and texts of calls, kept next to a store if a run requests it, for as long as it requests."""
