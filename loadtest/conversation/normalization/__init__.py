"""The one normalization of the texts that word errors are counted on: scripts first, then numbers, then the words.

Read `words` (letters, marks and digits of all scripts, and what counts as one word), then `numbers` (spoken and written
numbers, currencies and times). Pure.
"""
