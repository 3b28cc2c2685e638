"""The model of the kind in virtual time."""

from cellbed.workloads.offloading.virtual import Offloading
from cellbed.workloads.plates.kind import KIND

VIRTUAL = Offloading(KIND, rate="5 /s")
