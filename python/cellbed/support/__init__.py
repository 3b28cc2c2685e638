"""Modules that any package uses: errors, units, files, processes and the terminal."""
