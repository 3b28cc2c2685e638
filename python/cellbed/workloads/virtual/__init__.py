"""Virtual time: nodes, sockets and clocks for the clients of a real run, and the interface of a kind's model."""
