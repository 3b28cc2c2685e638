"""A scenario of a second with two nodes, an application that a server of Python's library has, and a sample of it."""

from scenario_text import app_table, scenario_head, server_keys

SCENARIO = scenario_head(
    mobile={"down": "50 Mbit/s", "base_delay": "5 ms", "queue": {"kind": "droptail", "limit": "500 kB"}},
    core={"edge": "1 ms"},
    name="phases",
    duration="1 s",
    seed=1,
)
WEB = app_table(
    "web",
    "http",
    url="http://{server.address}:8080/",
    rate="4 /s",
    arrivals="periodic",
    drain="1 s",
    server=server_keys("python3 -m http.server --protocol HTTP/1.1 8080", 8080),
)
SERVED = {
    "generator": 50_000,
    "server": 2_000_000,
    "receive": 200_000,
    "code": 200,
    "bytes_up": 0,
    "bytes_down": 5_000,
    "input": None,
    "services": {},
    "wire_down": 5_200,
    "head": 5_200,
    "kept": True,
}
"""A request in a profile; times in ns."""
