"""Check whether the kernel has a congestion control."""

from collections.abc import Sequence
from pathlib import Path

from cellbed.support.near_names import did_you_mean

_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_BUILT_IN = ("reno",)
_MODULES: tuple[str, ...] = (
    "cubic",
    "bbr",
    "vegas",
    "westwood",
    "htcp",
    "hybla",
    "veno",
    "yeah",
    "illinois",
    "dctcp",
    "nv",
    "cdg",
    "lp",
)
_MODULES += ("scalable", "highspeed", "bic")
"""Algorithms of Linux in modules ``tcp_…`` (net/ipv4/Kconfig)."""


def available() -> tuple[str, ...] | None:
    """Return the algorithms that this kernel has now; None if unknown."""
    try:
        return tuple(_AVAILABLE.read_text(encoding="utf-8").split()) or None
    except OSError:
        return None


def objection(name: str, present: Sequence[str] | None) -> str | None:
    """Return the problem of the algorithm ``name`` on a kernel that has those ``present``; None without one."""
    if present is None or name in present:
        return None
    now = f"this kernel has {' '.join(present)} now"
    if name in _MODULES:
        return f"'{name}' is not available: {now}; try: sudo modprobe tcp_{name}"
    hint = did_you_mean(name, sorted({*present, *_BUILT_IN, *_MODULES}))
    return f"'{name}' is not a congestion control of Linux: {hint}{now}"
