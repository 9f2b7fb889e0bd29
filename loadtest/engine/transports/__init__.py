"""Carriers of a call's messages: one connection with a framing, or a pool of them."""
