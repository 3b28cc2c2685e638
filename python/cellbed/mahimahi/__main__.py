"""``python -m cellbed.mahimahi NAME ARGUMENT…``: what the launchers of `cellbed mahimahi install` call."""

import sys

from cellbed.mahimahi.main import main

sys.exit(main(sys.argv[1:]))
