"""Pages that a browser loads, and the servers of recorded sites."""
