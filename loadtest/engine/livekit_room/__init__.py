"""The process that carries calls in rooms of a LiveKit server, by LiveKit's own SDK.

The SDK runs in asyncio and has threads of its own, so that it is kept out of the engine's process, which it speaks to
as the WebRTC process does.
"""
