"""Utterances as callers speak them: with a profile's noise, room, codecs and losses.

Read `render` first, then `profiles` (what a profile says), `noise`, and `cache` (what is rendered once is kept).
"""
