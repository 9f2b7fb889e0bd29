"""Forwarding of received data to other OTLP endpoints, from a bounded queue in memory.

Read `destinations` (the content of a `[[forward]]` table), `bounded_queue` (the requests that wait for a destination,
and the counts of the others, as they are shown), `sending` (one request and its answer: retried, refused or lost) and
`forwarder` (the interface to the process that ingests).
"""
