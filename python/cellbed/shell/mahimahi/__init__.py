"""Replacements of Mahimahi's commands (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", ATC 2015).

Nothing is imported here: shells nest, and each shell pays for the imports of its command.
"""
