"""Kinds of nodes, each a subclass of `Backend`."""
