"""Programs on nodes: their start, supervision, faults, spans and environment."""
