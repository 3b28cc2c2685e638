"""The kind ``segmentation``: photographs go to a node and come back as masks."""
