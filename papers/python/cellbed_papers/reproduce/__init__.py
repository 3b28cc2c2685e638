"""Published experiments, reproduced: sweeps or simulations, and a publication's claims beside what their trials show.

`swept` and `simulated` run a publication of `cellbed_papers.publication`, `page` shows the result.
"""
