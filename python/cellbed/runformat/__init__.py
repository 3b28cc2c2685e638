"""The format of a run's folder, common to the programs that make a run and the programs that measure it."""
