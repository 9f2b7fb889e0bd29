"""The stages of a profile: speed and pitch, room, noise, channel with packet loss, gain, clipping and DC.

`profile` defines and validates a profile, `parsing` reads it from flags and files, and each other module implements one
stage. Every stage keeps the time of each sample or documents exactly how it shifts it; `render` applies them in order.
"""
