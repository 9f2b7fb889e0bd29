"""The engine of a worker: sockets, clocks and the pacing of its callers' audio. Callers do input and output nowhere
else.

Read `engine` first (what one worker holds), then `call` (a transport, a protocol and a conversation put together),
`audio_track` (what is sent and what is known of it), `pacer` with `pacer_loop` (the compiled thread that sends),
`hub_sender` and `outbox` (sending without it), and `connection` with `transports` (the networks).
"""
