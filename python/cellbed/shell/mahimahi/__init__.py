"""Commands that stand in for Mahimahi's (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", ATC 2015).

Nothing is imported here: shells nest, and each of them pays for what its command imports.
"""
