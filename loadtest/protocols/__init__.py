"""One package a wire, without input or output: bytes in, events out.

Read `base` first (what a caller and a wire agree on), then `received` and `wire_settings` (what wires share),
`built_in` and `registry` (which wires there are), `deepgram` as the example of a wire, and `transports` (framing below
the wires). Wires do not import each other.
"""
