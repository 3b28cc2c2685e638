"""Runs in virtual time: the clients of a real run over simulated links, with servers that take as long as measured."""
