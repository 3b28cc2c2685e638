"""Sweeps: a scenario at every point of a design, each several times, in one folder with one table.

`file` reads the sweep file, `design` makes points of it, `trials` makes each of them a scenario, `store` keeps their
runs, `runner` has them run, `rows` are the lines of the table, and `library` is the Python interface.
"""
