"""Reports: statistics over repetitions, figures, pages, and tables on the terminal."""

from cellbed.measure.differences import Difference as Difference
from cellbed.measure.differences import Estimate as Estimate
from cellbed.measure.differences import Samples as Samples
from cellbed.measure.differences import Seed as Seed
from cellbed.measure.differences import difference as difference
from cellbed.measure.differences import estimate as estimate
from cellbed.measure.flows import bin_flows as bin_flows
from cellbed.measure.flows import transfers as transfers
from cellbed.measure.repetitions import Interval as Interval
from cellbed.measure.repetitions import mean_interval as mean_interval
from cellbed.measure.run_folder import read_tables as read_tables
from cellbed.measure.run_folder import replace as replace
from cellbed.report import flows as flows
from cellbed.report import formats as formats
from cellbed.report import html as html
from cellbed.report import plot as plot
from cellbed.report.figures import COLOURS as COLOURS
from cellbed.report.figures import DASHES as DASHES
from cellbed.report.head import Head as Head
from cellbed.report.plot import Bars as Bars
from cellbed.report.terminal import new_console as new_console
from cellbed.runformat.spans import PLACES as PLACES
from cellbed.support.console import Console as Console
from cellbed.support.console import table_width as table_width
from cellbed.support.readable import duration_unit as duration_unit
