"""Workloads: applications on the nodes and the load generators that drive them.

Begin at :mod:`cellbed.workloads.kind`, which defines the interface of a kind of workload. The processes of a workload
import this package at their start, so it imports nothing.
"""
