"""Stop and copy: the program stands still while all of its memory is written, transferred and read."""

from cellbed.testbed.migration.checkpoint import Checkpoint


class StopAndCopy(Checkpoint):
    """Everything moves while the program is stopped. No state is at both nodes, and none can be lost on the way."""
