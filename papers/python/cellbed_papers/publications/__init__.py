"""Publications to reproduce: each file has a `PUBLICATION`."""
