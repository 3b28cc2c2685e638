"""Check this machine's requirements for cellbed, with remedies."""

from cellbed.doctor.examine import examine
from cellbed.doctor.machine import Check, can_run

__all__ = ["Check", "can_run", "examine"]
