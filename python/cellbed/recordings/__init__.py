"""Recordings of networks: packet trains and saturation over time, in a directory, and series derived from them."""
