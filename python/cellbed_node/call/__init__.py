"""A video call between two browsers."""
