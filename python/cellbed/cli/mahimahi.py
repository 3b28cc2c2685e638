"""`cellbed mahimahi`: install replacements of Mahimahi's commands where scripts find them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Install Mahimahi's commands of cellbed."
)

_Prefix = Annotated[
    Path,
    typer.Option("--prefix", help="Parent of the commands' folder bin.", show_default="~/.local", metavar="FOLDER"),
]
_DEFAULT = Path("~/.local")


@app.command("install")
def install_launchers(
    prefix: _Prefix = _DEFAULT,
    force: Annotated[bool, typer.Option("--force", help="Replace other programs with the same names.")] = False,
) -> None:
    """Install mm-link, mm-delay, mm-loss and the other commands.

    \b
    Examples:
      cellbed mahimahi install
      sudo cellbed mahimahi install --prefix /usr/local
      mm-delay 20 mm-loss uplink 0.01 mm-link 12mbit 12mbit -- curl -sI https://example.org
    """
    from cellbed.shell.mahimahi.install import install, is_on_path

    place = prefix.expanduser()
    print(f"{len(install(place, force=force))} commands are in {place.absolute() / 'bin'}")
    if not is_on_path(place):
        print(f'That folder is not on your PATH; add it with: export PATH="{place.absolute() / "bin"}:$PATH"')


@app.command("uninstall")
def uninstall_launchers(prefix: _Prefix = _DEFAULT) -> None:
    """Remove the installed commands; other programs stay.

    \b
    Example:
      sudo cellbed mahimahi uninstall --prefix /usr/local
    """
    from cellbed.shell.mahimahi.install import uninstall

    removed = uninstall(prefix.expanduser())
    print(f"{len(removed)} commands were removed from {prefix.expanduser().absolute() / 'bin'}")
