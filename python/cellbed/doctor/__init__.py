"""What this machine has and lacks for cellbed, and what to do about it."""

from cellbed.doctor.check import Check, can_run
from cellbed.doctor.examine import examine

__all__ = ["Check", "can_run", "examine"]
