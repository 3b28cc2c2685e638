"""Record round-trip times to hosts over days, for `cellbed ping-record`."""

from cellbed.pings.recorder import Options, record
from cellbed.pings.summary import HostSummary

__all__ = ["HostSummary", "Options", "record"]
