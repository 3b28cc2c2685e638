"""The packet log for other programs: Mahimahi's log, CSV, Parquet; and its figures in the terminal.

Logs are read in chunks, so their size does not matter.
"""
