"""Programs on nodes: load generators, services, their life cycle and records, and the agent of other machines.

Nothing here imports :mod:`cellbed`: this folder is sent to machines that have only Python.
"""
