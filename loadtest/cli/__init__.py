"""The commands: thin, each the flags of a job that another package carries out.

Read `main` first (which commands there are), then `flags` (what they share) and `guard` (errors become sentences
and exit codes).
"""
