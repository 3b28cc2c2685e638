"""The applications of the evaluation, which measure a network in real and in virtual time."""
