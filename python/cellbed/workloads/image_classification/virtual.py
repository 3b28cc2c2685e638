"""The model of the kind in virtual time."""

from cellbed.workloads.image_classification.kind import KIND
from cellbed.workloads.offloading.virtual import Offloading

VIRTUAL = Offloading(KIND, rate="5 /s")
