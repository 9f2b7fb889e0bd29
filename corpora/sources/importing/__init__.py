"""Import of existing recordings into a corpus, from sources that are not trusted.

Read `items` first, then `layouts` and `stereo_calls` (what a source contains), `decoding` and `conditioning` (from a
file to a clip), `clip_processes` and `pipeline` (all clips into a corpus), and `command`. `tree` keeps names inside the
source; `tables` reads its lists.
"""
