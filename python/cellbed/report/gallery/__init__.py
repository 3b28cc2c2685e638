"""Pictures of the archive's traces: one, or several on the same axes."""
