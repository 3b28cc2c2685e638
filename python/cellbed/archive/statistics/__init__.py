"""Statistics of a series."""

from cellbed.archive.statistics.analysis import Analysis, Statistics, analyse, statistics
from cellbed.archive.statistics.figures import FIGURES, Figure
from cellbed.archive.statistics.outages import DEFAULT, Definition

__all__ = ["DEFAULT", "FIGURES", "Analysis", "Definition", "Figure", "Statistics", "analyse", "statistics"]
