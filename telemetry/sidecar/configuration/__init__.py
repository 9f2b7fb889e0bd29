"""The settings of a sidecar.

To read in this order: `settings` (lists them), `reading` (finds them in the file, the environment and the flags, and
shows those that hold), `building` (makes options of them).
"""
