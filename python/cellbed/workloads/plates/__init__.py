"""The kind ``plates``: camera frames go to a node, and the text of their licence plates returns."""
