"""``python -m cellbed`` is the command ``cellbed``."""

from cellbed.cli.main import main

main()
