"""The model of the kind in virtual time."""

from cellbed.workloads.offloading.virtual import Offloading
from cellbed.workloads.plates.kind import KIND

# Most frames must be in a profile.
VIRTUAL = Offloading(KIND, rate="3 /s", seconds=30)
