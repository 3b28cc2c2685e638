"""Publications to reproduce: each file has a `PUBLICATION`, and imports from cellbed `cellbed.reproduction` alone."""
