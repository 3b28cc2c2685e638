"""The kind ``http``: requests to any HTTP server."""
