"""Traces: the user's archive, generators, and places behind the core network."""

from cellbed.archive import replayable as replayable
from cellbed.archive.catalogue import resolve as resolve
from cellbed.archive.generation import series as series
from cellbed.archive.generation.models import SLOT_LTE as SLOT_LTE
from cellbed.archive.generation.models import Model as Model
from cellbed.archive.generation.models import Order as Order
from cellbed.archive.generation.models import each_way as each_way
from cellbed.archive.generation.presets import PRESETS as PRESETS
from cellbed.archive.generation.presets import TICK_NS as TICK_NS
from cellbed.archive.generation.presets import Wander as Wander
from cellbed.archive.generation.series import Capacity as Capacity
from cellbed.archive.randomness import Stream as Stream
from cellbed.archive.series import ENDINGS as ENDINGS
from cellbed.archive.store import open_archive as open_archive
from cellbed.recordings.importing import make_traces as make_traces
from cellbed.scenario.places import PLACES as PLACES
