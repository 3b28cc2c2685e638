"""The browser as the client of pages, videos and calls."""

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
"""Names of the browser; one must be installed."""
