"""The command line: one file per verb, which parses, calls one function and prints."""
