"""Parts of the kinds whose client is a browser: the browser, and the servers of its pages."""

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
"""Names of the browser, of which one must be installed."""
PACKAGES = {"nginx": "nginx-light", "caddy": "caddy"}
"""Servers of pages, with the packages that have them."""
