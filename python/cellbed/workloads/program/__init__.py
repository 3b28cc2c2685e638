"""The kind ``program``: any programs, unmodified."""
