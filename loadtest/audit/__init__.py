"""`voiceprobe audit`: looks everywhere for personal data that must not be there.

Read `job` first, then `needles` (what is looked for), `places` (where) and `search` (in whatever form).
"""
