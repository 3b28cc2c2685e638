"""Generated traces: models with a seed, cited, labelled as synthetic."""
