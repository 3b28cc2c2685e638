"""``cellbed traces generate``, with a command for each generator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cellbed.archive.generation import models
from cellbed.archive.generation.models import Model, Order
from cellbed.archive.generation.presets import PRESETS
from cellbed.cli.options import AsJson
from cellbed.cli.traces.options import duration, entries_and_files
from cellbed.cli.verbs import Verb
from cellbed.support.stages import radio_profiles

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def generate() -> None:
    """Generate synthetic traces: seeded, cited, labelled as synthetic.

    The same seed gives the same series.

    \b
    Examples:
      cellbed traces generate lte-netherlands                          after a publication
      cellbed traces generate markov --like lte-suburban               similar to a recording
      cellbed traces generate radio --profile mmwave --obstacle vehicle
      cellbed traces generate radio --help                             parameters of a generator
    """


def _durations(text: str) -> tuple[int, ...]:
    return tuple(duration(each.strip()) for each in text.split(","))


def _time(text: str, least: str, most: str) -> Any:
    """Return an option for a duration from `least` to `most`, both with a unit."""

    def parse(written: str) -> int:
        value = duration(written)
        if not duration(least) <= value <= duration(most):
            raise typer.BadParameter(f"'{written:.40}' is out of range: write {least} to {most}")
        return value

    return typer.Option(parser=parse, metavar="TIME", help=text)


_As = Literal["opportunities", "rate"]
if TYPE_CHECKING:
    _Profile = str
    _Mobility = str
    _Obstacle = str
else:
    _Profile = Literal[(*radio_profiles(), "mmwave")]
    _Mobility = Literal[("profile", *models.MOBILITY)]
    _Obstacle = Literal[("none", *models.OBSTACLES)]

Lasts = Annotated[Any, typer.Option("--duration", parser=duration, metavar="TIME", help="Duration of the trace.")]
Seed = Annotated[
    int, typer.Option(min=0, max=10**18, metavar="NUMBER", help="Random seed; equal seeds give equal series.")
]
Name = Annotated[str | None, typer.Option(help="Name in the archive.", show_default="the generator's")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace an existing entry of that name.")]
Content = Annotated[
    _As | None, typer.Option("--as", help="Stored form of the directions.", show_default="as the generator produces")
]


@app.command(cls=Verb)
def markov(
    like: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Recording to fit: an entry of the archive, or a file. Default of --duration: its duration.",
            autocompletion=entries_and_files,
        ),
    ],
    outage: Annotated[
        Any, _time("Minimum time without opportunities that counts as an outage.", "1 ms", "60 min")
    ] = "200 ms",
    lasts: Lasts = None,
    seed: Seed = 1,
    name: Name = None,
    replace: Replace = False,
    content: Content = None,
    as_json: AsJson = False,
) -> None:
    """A Markov-modulated rate, fitted to a recording.

    After Fischer & Meier-Hellstern, The Markov-modulated Poisson process (MMPP) cookbook, Performance Evaluation 18,
    1993; the two chains and the fit are cellbed's own.

    \b
    Example:
      cellbed traces generate markov --like lte-suburban --duration '10 min'
    """
    from cellbed.archive.generation.recorded import read_recorded as recording
    from cellbed.archive.store import valid_name

    model = models.markov(recording(like, Path.cwd()), outage)
    assert model.like is not None
    _keep(model, lasts, seed, name or valid_name(f"like-{model.like.name}"), replace, content, as_json)


@app.command(cls=Verb)
def radio(
    profile: Annotated[_Profile, typer.Option(help="Profile: see docs/reference/radio.md.")] = "midband-good",
    mobility: Annotated[
        _Mobility, typer.Option(help="Handovers every 33.3 s (driving), 14 s (subway; §VI-B), or the profile's.")
    ] = "profile",
    obstacle: Annotated[
        _Obstacle, typer.Option(help="With mmwave: attenuation of 26 dB (body), 29 dB (vehicle; §VI-A), or complete.")
    ] = "none",
    obstacle_at: Annotated[
        Any, typer.Option(parser=_durations, metavar="TIME,…", help="Times of the obstacle.")
    ] = "20 s, 40 s",
    obstacle_for: Annotated[Any, _time("Duration of the obstacle.", "1 ms", "744 h")] = "10 s",
    lasts: Lasts = "120 s",
    seed: Seed = 1,
    name: Name = None,
    replace: Replace = False,
    content: Content = None,
    as_json: AsJson = False,
) -> None:
    """The radio model under saturation, with handovers.

    docs/reference/radio.md states which parts of the model are published. Handovers and obstacles: Lim et al., An
    Empirical Study of 5G, IEEE Transactions on Mobile Computing, 2024, §VI. The lengths of gaps and the onset and end
    of an obstacle are cellbed's own.

    \b
    Example:
      cellbed traces generate radio --profile mmwave --obstacle vehicle
    """
    model = models.radio(profile, mobility, obstacle, obstacle_at, obstacle_for)
    _keep(model, lasts, seed, name, replace, content, as_json)


def _add(preset: Model) -> None:
    """Add the command of a model without specific parameters."""

    def command(
        lasts: Lasts = "120 s",
        seed: Seed = 1,
        name: Name = None,
        replace: Replace = False,
        content: Content = None,
        as_json: AsJson = False,
    ) -> None:
        _keep(preset, lasts, seed, name, replace, content, as_json)

    example = f"\b\nExample:\n  cellbed traces generate {preset.name} --duration '10 min'"
    help_ = f"{preset.summary}\n\nCitation: {preset.citation}.\n\n{preset.cited}\n\n{example}"
    app.command(preset.name, cls=Verb, help=help_)(command)


for _preset in PRESETS:
    _add(_preset)


def _keep(
    model: Model, lasts: int | None, seed: int, name: str | None, replace: bool, content: _As | None, as_json: bool
) -> None:
    from cellbed.archive import open_archive
    from cellbed.archive.generation.generate import keep, result_as_json, view_lines
    from cellbed.archive.series import Content
    from cellbed.support.standard_streams import StatusLine

    duration_ns = model.duration_ns if lasts is None else lasts
    order = Order(model.name, seed, duration_ns, None if content is None else Content(content))
    with StatusLine() as line:
        entry, parts = keep(open_archive(), model, order, name or model.name, replace, line.share)
    if as_json:
        print(json.dumps(result_as_json(entry, parts), indent=2, ensure_ascii=False))
    else:
        print("\n".join(view_lines(entry)))
