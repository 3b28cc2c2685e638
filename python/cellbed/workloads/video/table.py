"""Video playback in a scenario."""

import functools
import pathlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from cellbed.archive import find_file
from cellbed.scenario.applications import Application, Groups, Key, Wait
from cellbed.scenario.fields import MANIFEST, TextField, quantity
from cellbed.scenario.table import written
from cellbed.support.bounded import run_bounded
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import DURATION, UnitError
from cellbed.workloads.browsing import PACKAGES, server_misfits
from cellbed.workloads.video.renditions import LADDER
from cellbed_node import inputs
from cellbed_node.browsing import PROGRAMS
from cellbed_node.temporary import temporary_folder

HOST = "video.test"
"""Name of the server, reserved for tests (RFC 6761, §6.2)."""
RULES = ("dynamic", "throughput", "bola", "l2a", "lol+")
"""Rules of dash.js."""
PLAYERS = Path(__file__).parent / "players"
LIBRARIES = {"dash": PLAYERS / "dash.all.min.js", "hls": PLAYERS / "hls.min.js"}
ENDINGS = {"dash": ".mpd", "hls": ".m3u8"}


def _read_rule(text: str, folder: Path) -> Path | str:
    if text in RULES:
        return text
    if (file := find_file(text, folder)) is None:
        hint = did_you_mean(text, RULES)
        raise UnitError(f"no rule or file '{text}': {hint}write one of {', '.join(RULES)}, or a file, './rule.js'")
    return file


@functools.lru_cache(maxsize=8)
def _rule_problem(text: str) -> str:
    """Return why a file is no rule, as far as visible without a browser; empty if it may be a rule."""
    if not re.search(r"\bfunction\s*\*?\s*rule\b|\brule\s*=", text):
        return " has no function rule: write function rule({ rates, index }) { return 0 } (docs/how-to/video.md)"
    if (node := shutil.which("node")) is None:
        return ""
    with temporary_folder() as folder:
        (folder / "rule.js").write_text(text, encoding="utf-8")
        done = run_bounded([node, "--check", folder / "rule.js"], timeout_s=60, memory=None)
    errors = done.stderr.decode(errors="replace")
    found = re.search(r"rule\.js:([0-9]+)(?:.|\n)*?^(SyntaxError: .*)$", errors, re.MULTILINE)
    return f", line {found[1]}: {found[2][:200]}" if found and done.returncode else ""


RULE = TextField(
    _read_rule,
    str,
    {"minLength": 1, "examples": [*RULES, "./rule.js"]},
    lambda _number: f"one of {', '.join(RULES)}, or the path of a file",
)


class Video(Application):
    """Playback of a video in Chromium, over DASH with dash.js or HLS with hls.js, from nginx or Caddy."""

    model_config = ConfigDict(json_schema_extra={"required": ["kind", "server"]})

    arrivals: ClassVar[str] = "closed"
    """A client plays one video at a time."""

    kind: Literal["video"]
    protocol: Literal["dash", "hls"] = Field("dash", description="DASH with dash.js, or HLS with hls.js.")
    renditions: Annotated[list[Literal["720p", "1080p", "2160p"]], Field(min_length=1)] = Field(
        ["720p", "1080p", "2160p"],
        description="Renditions among which the player chooses: 4, 8 and 12 Mbit/s. A single one is fixed.",
    )
    length: Annotated[int, quantity(DURATION, "1 s", "10 min")] = Field(
        written("120 s"), description="Length of the video."
    )
    manifest: Annotated[pathlib.Path, MANIFEST] | None = Field(
        None, description="Manifest of your own video, whose folder is served, instead of the generated one."
    )
    abr: Annotated[pathlib.Path | str, RULE] | None = Field(
        None,
        description="Rule of dash.js that chooses renditions: dynamic, throughput, bola, l2a or lol+; or a file in "
        "JavaScript with your own, for both players. Default: dynamic; of hls.js its own.",
    )
    software: Literal["nginx", "caddy"] = Field("nginx", description="The server.")
    version: Literal["1.1", "2", "3"] = Field("2", description="Version of HTTP; 3 from Caddy.")
    drain: Wait = Field(written("10 s"), description="Time to wait for a chunk after the end of the load.")

    @property
    def host_names(self) -> tuple[str, ...]:
        return (HOST,)

    @property
    def has_certificate(self) -> bool:
        return True

    @property
    def tools(self) -> tuple[tuple[str, tuple[str, ...], str], ...]:
        encoder = ("kind", ("ffmpeg",), "ffmpeg")
        server = ("software", (self.software,), PACKAGES[self.software])
        return ("kind", PROGRAMS, PROGRAMS[0]), server, *((encoder,) if self.manifest is None else ())

    @property
    def third_party_files(self) -> tuple[tuple[str, Path, str], ...]:
        return (("protocol", LIBRARIES[self.protocol], "python scripts/fetch_assets.py players"),)

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        if self.server is None:
            yield "server", 'missing: write the node group that serves the video, server = "edge"'
        if self.protocol == "hls" and self.abr in RULES:
            yield "abr", "a rule of dash.js, and hls.js has its own: remove this key, or write the path of your rule"
        if isinstance(self.abr, Path):
            try:
                problem = _rule_problem(inputs.text(self.abr))
            except OSError as error:
                problem = f" cannot be read: {error.strerror}"
            if problem:
                yield "abr", f"{self.abr.name}{problem}"
        if self.manifest is not None:
            for name in sorted(self.model_fields_set & {"renditions", "length"}):
                yield name, "the manifest has them: remove this key"
            if self.manifest.suffix != ENDINGS[self.protocol]:
                other = "hls" if self.protocol == "dash" else "dash"
                yield "manifest", f'not a file {ENDINGS[self.protocol]}: write another one, or protocol = "{other}"'
        if len(set(self.renditions)) < len(self.renditions):
            yield "renditions", "one of them is there twice: remove it"
        yield from server_misfits(self.software, self.version, self.server, groups)

    @property
    def length_s(self) -> float:
        """Return the length of the generated video, seconds."""
        return self.length / 1e9

    def __str__(self) -> str:
        """Return the application in a line."""
        where = self.server.on if self.server is not None else "no node"
        what = self.manifest or ", ".join(name for name in LADDER if name in self.renditions)
        return f"{self.kind} on {where}, {self.protocol.upper()}, {what} over HTTP/{self.version}"
