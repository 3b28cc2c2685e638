"""The kind ``image-classification``: photographs go to a node and come back as classes."""
