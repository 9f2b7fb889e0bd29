"""Speech bounds in a clip, and how well they are known.

Read `bounds` first, then `speech_edges` and `speech_tail` (one reading of an end), `boundary_uncertainty`, and
`lint` (the checks of a corpus).
"""
