"""Turns from the spans of services: of voice frameworks, and of services that report by our own table.

To read in this order: `frameworks` (the table of data/framework-spans.toml, and the role of a span), `trace_turns`
(which spans form a turn), `spans_of_turn` with `attribute_values` (the values in a turn's spans), `framework_turns` and
`own_turns` (the turn itself), `turn_assembly` (what is stored of it, and when it is complete).
"""
