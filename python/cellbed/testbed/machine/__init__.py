"""This machine: processes in namespaces, control groups, signals, privileges, and the registry of runs."""
