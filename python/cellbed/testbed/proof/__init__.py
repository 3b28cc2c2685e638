"""Proof of limits and links before the workload starts."""
