"""Deepgram's Voice Agent: recognition, language model and synthesis of one service over one WebSocket."""
