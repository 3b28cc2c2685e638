"""Verbs of this distribution, one file for each."""
