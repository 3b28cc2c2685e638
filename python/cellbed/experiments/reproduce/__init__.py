"""Published experiments, reproduced: sweeps, and what a publication claims beside what their trials show.

`publication` has the parts of a reproduction and evaluates claims (pure), `reproduction` runs it, `thesis` is data.
"""
