"""Pictures of the archive's traces: one, several on the same axes, and a page of all."""
