"""Making a corpus of what a team has already.

Each layout has a file of its own, a generator of `Item`s; one pipeline decodes, resamples, levels and annotates them.
Nothing that is read is trusted: names stay inside the source, sizes are bounded while they are being read.
"""
