"""The applications over sockets: a server at the far end of the link and a client at the near one.

Both are processes: `python -m cellbed.experiments.evaluation.programs serve ADDRESS TASK` and `… run ADDRESS TASK`.
The client writes a line of JSON when it is ready, waits for a line, does what its application says, and writes a line
for every sample.
"""
