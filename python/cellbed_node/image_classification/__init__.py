"""Photographs, and a network that classifies them."""
