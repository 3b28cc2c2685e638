"""Videos that a player in a browser plays."""
