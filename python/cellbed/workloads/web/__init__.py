"""Web pages, loaded by Chromium from nginx or Caddy, or from any server."""

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
"""Names of the browser, of which one must be installed."""
