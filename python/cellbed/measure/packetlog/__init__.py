"""The packet log for other programs: Mahimahi's log, CSV, Parquet; and its figures in the terminal.

Everything here goes through a log in chunks, so that its size does not matter.
"""
