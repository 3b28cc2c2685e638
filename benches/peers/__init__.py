"""Comparison of cellbed with the programs that users know, on the same machine in the same run."""
