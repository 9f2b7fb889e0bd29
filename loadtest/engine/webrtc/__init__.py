"""Peer connections in a process of their own: aiortc is asyncio and threads, which gevent's patching turns inside out.

Its work on each packet would also keep the engine's loop from sending on time. The engine and that process exchange
messages over one socket, and both read the same monotonic clock.
"""
