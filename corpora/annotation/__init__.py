"""Where speech begins and ends in a clip, and how well that is known.

Read `bounds` first, then `speech_edges` and `speech_tail` (one reading of an end), `boundary_uncertainty`, and
`lint` (the checks of a corpus).
"""
