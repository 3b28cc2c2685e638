"""Nodes and links of one run: plan, limits, namespaces, proof, life cycle, clean-up."""

import logging

# Without a handler Python prints warnings on standard error, between the lines of a program in a shell.
logging.getLogger("cellbed").addHandler(logging.NullHandler())
