"""Record round-trip times to hosts over days, for `cellbed ping-record`."""
