"""``python -m cellbed.shell.mahimahi NAME ARGUMENT…``: what the launchers of `cellbed mahimahi install` call."""

import contextlib
import sys
from pathlib import Path

# First of all: `pkill mm-delay` and `killall mm-link` look for this name of the process (proc(5), comm).
with contextlib.suppress(OSError, IndexError):
    Path("/proc/self/comm").write_text(sys.argv[1], encoding="utf-8")

from cellbed.shell.mahimahi.main import main

sys.exit(main(sys.argv[1:]))
