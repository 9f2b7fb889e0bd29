"""Forwarding of what a sidecar receives to other OTLP endpoints, from a bounded queue in memory.

Read `destinations` (what a `[[forward]]` table says), `bounded_queue` (what waits for a destination, and the counts of
what became of it, as they are shown), `sending` (one request and its answer; what is tried again, refused or lost) and
`forwarder` (the seam to the process that ingests).
"""
