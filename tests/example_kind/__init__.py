"""The kind ``status-poll`` of the recipe in docs/design.md: requests for ``/status`` of a server."""
