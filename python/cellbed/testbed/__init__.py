"""Nodes and links of one run: plan, limits, namespaces, proof, life cycle, clean-up."""
