"""Published experiments, reproduced: sweeps or simulations, and a publication's claims beside what their trials show.

`swept` and `simulated` run a publication of `cellbed.reproduction`, `page` shows the result.
"""
