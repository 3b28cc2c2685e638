"""The closed loop: how much does the replay of a recorded network differ from the network?

A reference network with known weather is recorded. Several methods replay the recording. The same applications run on
the reference and on each replay, all in virtual time (after Sentosa et al., "CellReplay: Towards accurate
record-and-replay for cellular networks", NSDI 2025, §5.3).
"""
