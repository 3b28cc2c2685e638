"""Servers of the kinds whose client is a browser."""

PACKAGES = {"nginx": "nginx-light", "caddy": "caddy"}
"""Servers of pages, with the packages that have them."""
