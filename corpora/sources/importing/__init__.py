"""Import of existing recordings into a corpus.

Each layout has its own module with a generator of `Item`s; one pipeline decodes, resamples, normalizes and annotates
them. The source is not trusted: names must stay inside it, and sizes are limited while reading.
"""
