"""Messages over WebSocket."""
