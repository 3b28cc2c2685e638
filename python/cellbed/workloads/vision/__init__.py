"""The common part of the kinds that look at images: a network of the user's own, with its pre- and post-processing."""
