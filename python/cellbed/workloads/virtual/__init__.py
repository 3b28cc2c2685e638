"""Virtual time: nodes, sockets and clocks for the clients of a real run, and what a kind's model offers."""
