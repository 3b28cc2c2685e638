"""Generation of what nobody has recorded: models with a seed, cited, labelled as synthetic."""
