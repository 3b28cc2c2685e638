"""Models after published figures, by publication. Each has published figures for comparison.

What a publication does not give is ours, chosen so that its figures come out; each model says which is which.
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
