"""Runs in virtual time: the clients of a real run over simulated links, and servers with measured times."""
