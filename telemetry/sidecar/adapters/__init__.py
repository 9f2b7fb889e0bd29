"""Turns from the spans of services: those of voice frameworks, and those of services that report by our own table.

To read in this order: `frameworks` (the table of data/framework-spans.toml, and what a span is),
`trace_turns` (which spans are a turn), `spans_of_turn` with `attribute_values` (what a turn's spans say),
`framework_turns` and `own_turns` (the turn itself), `turn_assembly` (what is stored of it, and when
it is complete).
"""
