"""The closed loop: how far does the replay of a recorded network differ from the network itself?

A reference network of known weather is recorded, the recording is replayed by several methods, and the same
applications run on the reference and on each replay, all in virtual time (after Sentosa et al., "CellReplay: Towards
accurate record-and-replay for cellular networks", NSDI 2025, §5.3).
"""
