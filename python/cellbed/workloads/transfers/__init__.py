"""The application kind ``transfers``."""
