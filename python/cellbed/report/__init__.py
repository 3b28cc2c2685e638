"""Reports of runs: tables on the terminal, one self-contained page of HTML."""
