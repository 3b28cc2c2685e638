"""Round-trip times to hosts of one's own choice, over days: what `cellbed ping-record` does."""

from cellbed.pings.recorder import Options, record
from cellbed.pings.summary import HostSummary

__all__ = ["HostSummary", "Options", "record"]
