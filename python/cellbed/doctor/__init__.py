"""Check this machine's requirements for cellbed, with remedies."""

from cellbed.doctor.check import Check, can_run
from cellbed.doctor.examine import examine

__all__ = ["Check", "can_run", "examine"]
