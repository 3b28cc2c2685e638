"""Runs and standing testbeds from plan to report; replays compared with the recorded network."""
