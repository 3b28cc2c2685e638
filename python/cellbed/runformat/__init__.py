"""The format of a run's folder, as the programs that make a run and those that measure it share it."""
