"""The one normalization of the texts that word errors are counted on: scripts first, then numbers, then the words.

Read `scripts` (letters, marks and digits of all scripts), `numbers` (spoken and written numbers, currencies and times),
then `words` (both in their order, and what counts as one word). Pure.
"""
