"""The model of the kind in virtual time."""

from cellbed.workloads.offloading.virtual import Offloading
from cellbed.workloads.translation.kind import KIND

# Sentences take different times, so most of them must be in a profile.
VIRTUAL = Offloading(KIND, rate="2 /s", seconds=60)
