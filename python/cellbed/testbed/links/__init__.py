"""Links of a run: the emulator, its stages, and their changes while it runs."""
