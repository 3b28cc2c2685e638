"""What drives a testbed: single runs now; sweeps and repetitions build on them."""
