"""Telephone calls that a provider (Twilio, Telnyx, Plivo, Exotel, Vonage) streams to an agent by WebSocket. Pure."""
