"""The model of the kind in virtual time."""

from cellbed.workloads.image_classification.kind import programs
from cellbed.workloads.offloading.virtual import Offloading

VIRTUAL = Offloading(programs, rate="5 /s")
