"""A scenario of a second with two nodes, and an application that a server of Python's library has."""

SCENARIO = """
name = "phases"
duration = "1 s"
seed = 1

[nodes.endpoint]
cpus = 0.5
memory = "256 MiB"

[nodes.edge]
cpus = 0.5
memory = "256 MiB"

[links.mobile]
up = "20 Mbit/s"
down = "50 Mbit/s"
base_delay = "5 ms"
queue = { kind = "droptail", limit = "500 kB" }

[links.core]
edge = "1 ms"
"""
WEB = """
[apps.web]
kind = "http"
url = "http://{server.address}:8080/"
rate = "4 /s"
arrivals = "periodic"
drain = "1 s"

[apps.web.server]
on = "edge"
command = "python3 -m http.server --protocol HTTP/1.1 8080"
ready = { port = 8080 }
"""
