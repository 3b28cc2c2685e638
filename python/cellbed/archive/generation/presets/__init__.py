"""Models after published figures, by publication. Each has published figures for comparison.

Values that a publication does not give are chosen so that its figures result; each model states which
values are published.
"""

from cellbed.archive.generation.model import Model
from cellbed.archive.generation.presets import cellreplay, opensignal, study, study_moving, thesis

PRESETS: tuple[Model, ...] = (
    *thesis.MODELS,
    *study.MODELS,
    *study_moving.MODELS,
    *cellreplay.MODELS,
    *opensignal.MODELS,
    *thesis.PROJECTED,
)
