"""Stop and copy: the program is stopped while all of its memory is written, transferred and read."""

from cellbed.testbed.migration.checkpoint import Checkpoint
from cellbed.testbed.migration.strategy import Predicted, PredictedSteps


class StopAndCopy(Checkpoint):
    """Everything moves while the program is stopped. No state exists at both nodes, and no state can be lost."""

    def predict(self, move: Predicted) -> PredictedSteps:
        model = move.model
        with move.phase("prepare"):
            yield from move.prepare(model.start)
        stopped_ns = move.now_ns
        move.pause()
        with move.phase("snapshot"):
            yield model.save or 0
        yield from self.predict_end(move, model.size or 0, stopped_ns, model.finish)
