"""Workloads: applications on the nodes and the load generators that drive them.

Begin at :mod:`cellbed.workloads.kind`, which defines what a kind of workload offers. The processes of a workload
import this package at their start, so it imports nothing itself.
"""
