"""`voiceprobe audit`: looks everywhere for personal data that must not be there.

Read `job` first, then `search` (the texts, in every form) and `places`.
"""
