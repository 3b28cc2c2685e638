"""Reproductions of published experiments: sweeps or simulations, and the publication's claims with our results.

`swept` and `simulated` run a publication of `cellbed_papers.publication`, `page` shows the result.
"""
