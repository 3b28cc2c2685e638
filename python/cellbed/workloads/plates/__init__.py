"""The kind ``plates``: frames of a camera go to a node and come back as the licence plates in them."""
