"""OpenAI Realtime over WebSocket: GA names, beta names as aliases, both roles."""
