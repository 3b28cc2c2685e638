"""The model of the kind in virtual time."""

from cellbed.workloads.offloading.virtual import Offloading
from cellbed.workloads.segmentation.kind import KIND

VIRTUAL = Offloading(KIND, rate="1 /s", seconds=30)
