"""Files of users: checks, errors, units, and output that appears whole."""

from cellbed.runformat.folder import write_json as write_json
from cellbed.scenario.reader import with_values as with_values
from cellbed.support import flow_files as flow_files
from cellbed.support import inputs as inputs
from cellbed.support.near_names import did_you_mean as did_you_mean
from cellbed.support.temporary import remove_tree as remove_tree
from cellbed.support.temporary import temporary_folder as temporary_folder
from cellbed.support.units import DURATION as DURATION
from cellbed.support.units import SIZE as SIZE
from cellbed.support.whole_files import write_whole as write_whole
