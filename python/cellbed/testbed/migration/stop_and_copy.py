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
        with move.phase("transfer"):
            yield from move.send(model.size or 0, model.finish)
        with move.phase("restore"):
            yield model.restore or 0
            with move.phase("switch"):
                yield model.switch or 0
            move.resume()
        move.facts["stood_still_s"] = (move.now_ns - stopped_ns) / 1e9
