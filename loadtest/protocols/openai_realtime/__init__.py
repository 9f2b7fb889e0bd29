"""OpenAI Realtime over WebSocket, for callers and services: GA names, with the beta names as aliases."""
