"""Verbs of this distribution, one per file."""
