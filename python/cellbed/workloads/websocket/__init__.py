"""The kind ``websocket``: messages to any WebSocket server, and messages from the server."""
