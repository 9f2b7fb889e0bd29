"""The HTML report of a run: one file, its pictures inline, nothing loaded and no script."""
