"""cellbed beside the programs that users know, on the same machine in the same run."""
