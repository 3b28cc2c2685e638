"""Web pages, loaded by Chromium from nginx or Caddy, or from any server."""
