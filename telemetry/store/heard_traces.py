"""Which call of a caller a turn of a service belongs to, where the wire lost the trace too.

By the trace, where the service continues the caller's. Otherwise by the service's name of the conversation: the
caller's own name of the call, or a name that ends with the digits of the caller's trace, as the call ids of telephony
streams do.
"""

# ruff: noqa: S608 - the identifiers in these statements are our own

from typing import Final

_NAMED: Final = "regexp_extract(lower(replace(s.call_id, '-', '')), '([0-9a-f]{32})$', 1)"


def with_heard_trace(services: str, clients: str) -> str:
    """A statement that gives the rows of the table `services` with a column `heard_trace`: the trace of the call among
    those of the table `clients`, NULL where none of them is meant. Both have `trace_id` and `call_id`."""
    traces = f"(SELECT DISTINCT trace_id FROM {clients} WHERE trace_id <> '')"
    calls = f"""(SELECT call_id, min(trace_id) AS trace_id FROM {clients} WHERE call_id <> '' AND trace_id <> ''
                 GROUP BY call_id HAVING count(DISTINCT trace_id) = 1)"""
    return f"""
        SELECT s.*, coalesce(t.trace_id, n.trace_id, c.trace_id) AS heard_trace FROM {services} s
        LEFT JOIN {traces} t ON t.trace_id = s.trace_id
        LEFT JOIN {traces} n ON n.trace_id = {_NAMED}
        LEFT JOIN {calls} c ON c.call_id = s.call_id
        """
