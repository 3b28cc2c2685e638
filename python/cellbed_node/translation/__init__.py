"""Sentences, and their translator."""

SHORTEST, LONGEST = 100, 200  # bytes
BYTES_PER_PIECE = 4
"""Of each piece that the model can write, so that the number of pieces determines the length of the reply."""
