"""ElevenLabs Agents: conversations with an agent over its WebSocket, in JSON with base64 audio."""
