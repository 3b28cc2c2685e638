"""The kind ``websocket``: messages to any WebSocket server, and those that it sends."""
