"""A corpus to look at and listen to: a page of its own, and a table in the terminal."""
