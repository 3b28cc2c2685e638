"""Operations on recordings: each makes new series from old ones and a step of the history."""

from cellbed.archive.operations.apply import Bundle, apply_steps, bundle_of
from cellbed.archive.operations.entries import check, edit, pair
from cellbed.archive.operations.steps import STEPS, StepError, parse_step

__all__ = ["STEPS", "Bundle", "StepError", "apply_steps", "bundle_of", "check", "edit", "pair", "parse_step"]
