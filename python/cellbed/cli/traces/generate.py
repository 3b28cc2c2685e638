"""``cellbed traces generate``, with a command for each generator."""

from __future__ import annotations

import json
from inspect import Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cellbed.cli.traces.options import AS_JSON
from cellbed.cli.verbs import Verb

if TYPE_CHECKING:
    from cellbed.archive.generation.model import Model


class _Generators(TyperGroup):
    """A command for each generator, whose options are its parameters."""

    def list_commands(self, ctx: Any) -> list[str]:
        from cellbed.archive.generation.models import GENERATORS

        return list(GENERATORS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from cellbed.archive.generation.models import GENERATORS, generator

        if ctx.resilient_parsing and cmd_name not in GENERATORS:
            return None  # half a word, which a shell completes
        return _command(generator(cmd_name))


app = typer.Typer(cls=_Generators, invoke_without_command=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def generate(
    ctx: typer.Context,
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="Generate all published models and compare their figures with the publications. Takes minutes.",
        ),
    ] = False,
    as_json: bool = AS_JSON,
) -> None:
    """Generate synthetic traces: seeded, cited, labelled as synthetic.

    Without a generator, list all generators. The same seed gives the same series.

    \b
    Examples:
      cellbed traces generate lte-netherlands                          a published model
      cellbed traces generate markov --like lte-suburban               similar to a recording
      cellbed traces generate radio --profile mmwave --obstacle vehicle
      cellbed traces generate wander --help                            parameters of a generator
      cellbed traces generate --published                              published beside generated figures
    """
    if ctx.invoked_subcommand is not None:
        return
    from cellbed.archive.generation import views
    from cellbed.archive.generation.generate import published_figures
    from cellbed.archive.generation.models import GENERATORS

    if published:
        from cellbed.cli.traces.share import share_done

        with share_done() as progress:
            rows = published_figures(progress)
        _print(as_json, [views.figure_as_json(*row) for row in rows], views.published_table(rows))
        if not all(row.fits for _, row in rows):
            raise typer.Exit(1)
    else:
        _print(as_json, [views.model_as_json(each) for each in GENERATORS.values()], views.models_table())


def _command(model: Model) -> Any:
    from cellbed.cli.traces.generator_options import arguments, order

    def command(name: str | None, replace: bool, as_json: bool, **values: Any) -> None:
        from cellbed.archive import open_archive
        from cellbed.archive.generation import views
        from cellbed.archive.generation.generate import keep
        from cellbed.cli.traces.share import share_done

        asked = order(model, values, Path.cwd())
        with share_done() as progress:
            entry, result = keep(open_archive(), model, asked, name or views.usual_name(asked), replace, progress)
        _print(as_json, views.result_as_json(entry, result), views.result_shown(entry, result))

    signature = arguments(model)
    command.__signature__ = Signature(signature)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in signature}
    command.__doc__ = f"{model.summary}\n\nCitation: {model.citation}.\n\n{model.cited}"
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(model.name, cls=Verb)(command)
    return typer.main.get_command(alone)


def _print(as_json: bool, data: Any, shown: Any) -> None:
    if as_json:
        print(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        from cellbed.console import Console

        Console(soft_wrap=True).print(shown)
