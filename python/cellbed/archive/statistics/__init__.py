"""Statistics of a series."""

from cellbed.archive.statistics.analysis import Analysis, Statistics, analyse, statistics
from cellbed.archive.statistics.definition import DEFAULT, Definition
from cellbed.archive.statistics.figures import FIGURES, Figure

__all__ = ["DEFAULT", "FIGURES", "Analysis", "Definition", "Figure", "Statistics", "analyse", "statistics"]
