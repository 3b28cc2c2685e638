"""A scenario that is right, for tests to read and to spoil, and nodes for applications of tests."""

GOOD = """\
name = "test"
duration = "60 s"
seed = 1

[nodes.endpoint]
count = 1
cpus = 1.0
memory = "512 MiB"

[nodes.edge]
cpus = 2.0
memory = "2 GiB"

[links.mobile]
up = "12 Mbit/s"
down = "unlimited"
base_delay = "10 ms"
queue = { kind = "droptail", limit = "1 MB" }
start = "0 s"

[links.core]
edge = "base-edge"

[workload]
kind = "image-classification"
on = "edge"
rate = "2 /s"
arrivals = "periodic"
"""

NODES = """
[nodes.endpoint]
cpus = 1.0
memory = "256 MiB"

[nodes.edge]
cpus = 1.0
memory = "256 MiB"

[links.mobile]
up = "20 Mbit/s"
down = "20 Mbit/s"
base_delay = "10 ms"

[links.core]
edge = "3 ms"
"""
