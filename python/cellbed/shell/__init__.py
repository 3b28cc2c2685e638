"""Run any program behind an emulated link: `cellbed shell`."""

from cellbed.shell.link import ShellDirection, ShellLink
from cellbed.shell.meter import ShellMeter
from cellbed.shell.session import run_shell

__all__ = ["ShellDirection", "ShellLink", "ShellMeter", "run_shell"]
