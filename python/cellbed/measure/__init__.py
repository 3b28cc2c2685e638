"""Request spans, link and node series, statistics: what the raw files of a run contain."""
