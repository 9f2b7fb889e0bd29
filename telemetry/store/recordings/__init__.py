"""Audio and texts of calls, kept next to a store where a run was asked to keep them, for as long as it said."""
