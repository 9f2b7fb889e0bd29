"""Audio and texts of calls, kept beside a store where a run was asked to keep them, for as long as it said."""
