"""Reports: statistics over repetitions, figures, pages, and tables on the terminal."""

from cellbed.measure.repetitions import Interval as Interval
from cellbed.measure.repetitions import mean_interval as mean_interval
from cellbed.report import formats as formats
from cellbed.report import html as html
from cellbed.report import plot as plot
from cellbed.runformat.spans import PLACES as PLACES
from cellbed.support.console import Console as Console
