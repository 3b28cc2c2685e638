"""Run any program behind an emulated link: `cellbed shell`."""

from cellbed.shell.link import ShellLink
from cellbed.shell.session import run_shell

__all__ = ["ShellLink", "run_shell"]
