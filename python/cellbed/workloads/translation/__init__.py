"""The kind ``translation``: sentences go to a node and come back translated."""
