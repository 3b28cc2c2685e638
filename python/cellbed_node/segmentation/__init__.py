"""Photographs of persons, and a network that finds them."""

WIDTH, HEIGHT = 2048, 1024
"""Pixels of the photographs."""
