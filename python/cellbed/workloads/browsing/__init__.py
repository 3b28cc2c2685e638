"""What the kinds share whose client is a browser: the servers of its pages."""

PACKAGES = {"nginx": "nginx-light", "caddy": "caddy"}
"""Servers of pages, with the packages that have them."""
