"""Congestion control laws: a C header each, for the kernel, for virtual time and for tests."""
