"""The manifest of a corpus, and the corpora that can be opened by name.

Read `manifest` first, then `clips` (one clip against its line), `library` (finding and selecting) and `validation`.
"""
