"""Sweeps: a scenario at every point of a design, several times each, in one folder with one table.

`file` reads the sweep file, `design` makes points of it, `trials` makes a scenario for each point, `runner`
executes the scenarios, `store` keeps runs and results, `kinds` defines kinds of trials, and `library` is the Python
interface.
"""
