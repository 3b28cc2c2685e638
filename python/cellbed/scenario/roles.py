"""The programs of an application: their nodes, commands, conditions of readiness, and results."""

import pathlib
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from cellbed.laws.law import Law, name_of
from cellbed.scenario.fields import CONGESTION_CONTROL, PLACE, Buffer, Command, plainly, quantity, refusal
from cellbed.scenario.nodes import Name, NodeGroup
from cellbed.scenario.table import PLAIN, Table, written
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import DURATION, MEASURE_NAME, SIZE

Variable = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
Status = Annotated[int, Field(ge=0, le=255)]
OF_TCP = ("congestion_control", "receive_buffer", "send_buffer", "pacing")
"""Keys of a role for the connections of its program."""
_CHECKS = ("port", "line", "file", "http", "command")


class Ready(Table):
    """When a program counts as ready. One of the first five keys."""

    port: int | None = Field(None, ge=1, le=65535, description="It listens on this TCP or UDP port.", examples=[8080])
    line: str | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="Its output has a line with a match of this regular expression.",
        examples=["server started"],
    )
    file: str | None = Field(None, min_length=1, description="This file exists on the node.", examples=["run/ready"])
    http: str | None = Field(
        None,
        pattern="^http://",
        description="A GET request for this URL, sent on the node, has the reply 200.",
        examples=["http://{node.address}:8080/health"],
    )
    command: Command | None = Field(
        None, description="This command, run on the node, ends with status 0.", examples=["redis-cli ping"]
    )
    timeout: Annotated[int, quantity(DURATION, "1 ms", "1 h")] = Field(
        written("30 s"), description="Maximum time until the program is ready."
    )

    @field_validator("line")
    @classmethod
    def _is_expression(cls, line: str | None) -> str | None:
        try:
            re.compile((line or "").encode())
        except re.error as error:
            raise refusal(f"'{line}' is not a regular expression: {error}") from error
        return line

    @model_validator(mode="after")
    def _has_one_check(self) -> Self:
        if sum(getattr(self, key) is not None for key in _CHECKS) != 1:
            raise refusal(f"needs one of {', '.join(_CHECKS)}: write for example {{ port = 8080 }}")
        return self


class Stop(Table):
    """The end of a program: a signal, and SIGKILL after the grace time."""

    signal: Literal["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"] = Field(
        "SIGTERM", description="The signal that asks it to end."
    )
    grace: Annotated[int, quantity(DURATION, "0 s", "60 s")] = Field(
        written("5 s"), description="Maximum time to end then, before it is killed and the run reports this."
    )


class LineMeasures(Table):
    """Measures in lines of a program's standard output."""

    line: str = Field(
        min_length=1,
        max_length=1000,
        description="Regular expression. Each match in a line has a value for each of its named groups.",
        examples=["fps=(?P<fps>[0-9.]+)"],
    )
    units: dict[str, Annotated[str, Field(pattern="^[^\\x00-\\x1f\\x7f-\\x9f]{1,16}$")]] = Field(
        {}, description="Units of groups, as reports show them.", examples=[{"fps": "/s"}]
    )

    @property
    def names(self) -> list[str]:
        """The names of the regular expression's groups."""
        return list(re.compile(self.line.encode()).groupindex)

    @field_validator("line")
    @classmethod
    def _has_named_groups(cls, line: str) -> str:
        try:
            names = re.compile(line.encode()).groupindex.keys()
        except (re.error, OverflowError, RecursionError) as error:
            raise refusal(f"{plainly(line)} is not a regular expression: {error}") from error
        if not names - {"time_s"} or not all(re.fullmatch(MEASURE_NAME, name) for name in names):
            form = "letters, digits and _, a letter first: write for example 'fps=(?P<fps>[0-9.]+)'"
            raise refusal(f"{plainly(line)} needs named groups, with names of at most 64 {form}")
        return line


def _has_ending(path: str) -> str:
    if not path.isprintable() or PurePosixPath(path).suffix not in MEASURE_FILES:
        form = "write a file with one of these endings, or { line = 'fps=(?P<fps>[0-9.]+)' } for lines of its output"
        raise refusal(f"{plainly(path)} does not end in {', '.join(MEASURE_FILES)}: {form}")
    return path


MEASURE_FILES = (".json", ".csv", ".parquet")
"""Suffixes of files with measures."""
AnyMeasures = Annotated[
    Annotated[
        str,
        AfterValidator(_has_ending),
        WithJsonSchema({"type": "string", "pattern": r"\.(json|csv|parquet)$"}),
        Tag(PLAIN),
    ]
    | Annotated[LineMeasures, Tag("lines")],
    Discriminator(lambda value: "lines" if isinstance(value, Mapping | LineMeasures) else PLAIN),
]


class Role(Table):
    """The program of an application on each node of a group."""

    on: Name = Field(description="Node group that runs the program.", examples=["edge"])
    command: Command | None = Field(
        None,
        description="Program and arguments: a list, or text that is split like a shell does. Names in braces are "
        "filled in. A container may leave it out: then its image's own.",
        examples=["iperf3 --server"],
    )
    ready: Ready | None = Field(
        None, description="Condition of a ready server. Default: none.", examples=[{"port": 8080}]
    )
    environment: dict[Variable, str] = Field(
        {}, description="Environment variables beyond the node's.", examples=[{"THREADS": "2"}]
    )
    folder: str | None = Field(
        None, min_length=1, description="Working directory on the node. Default: the node's own.", examples=["/srv"]
    )
    copy_in: dict[Annotated[pathlib.Path, PLACE], str] = Field(
        {},
        description="Files and folders that are copied to the node first: path relative to the scenario file = path on "
        "the node.",
        examples=[{"site": "html"}],
    )
    copy_out: list[str] = Field(
        [],
        description="Paths on the node that are copied into the run's folder at the end.",
        examples=[["result.json"]],
    )
    measures: AnyMeasures | None = Field(
        None,
        description="The program's own measures: a file that it writes (JSON, CSV or Parquet), or lines of its output.",
        examples=["result.json", {"line": "fps=(?P<fps>[0-9.]+)", "units": {"fps": "/s"}}],
    )
    restart: Literal["never", "on-failure", "always"] = Field(
        "never", description="Restart of the program after it has ended during the run."
    )
    stop: Stop | None = Field(
        None,
        description="Way to end it, at the end of its load or of the run. Default: SIGTERM, and 5 s to end.",
        examples=[{"signal": "SIGINT", "grace": "10 s"}],
    )
    status: Status | list[Status] = Field(0, description="Expected exit status, or several of them.", examples=[0])
    congestion_control: Annotated[Law | str, CONGESTION_CONTROL] | None = Field(
        None, description="TCP congestion control of this program as a sender. Default: its node's."
    )
    receive_buffer: Buffer | None = Field(
        None,
        description="Receive buffer of each connection of this program, from its begin. Default: its node's.",
        examples=["8 MB"],
    )
    send_buffer: Buffer | None = Field(
        None, description="Send buffer of each connection, likewise. Default: its node's.", examples=["4 MB"]
    )
    pacing: bool | None = Field(None, description="Pacing of its segments, as in [transport]. Default: as there.")

    @model_serializer(mode="wrap")
    def _as_written(self, handler: Any) -> Any:
        """Dump a role without a program as the name of its group."""
        return self.on if self == Role.of_group(self.on) else handler(self)

    @classmethod
    def of_group(cls, name: str) -> Self:
        """Return the role of a group whose nodes run a cellbed program."""
        return cls.model_validate({"on": name})

    @property
    def statuses(self) -> tuple[int, ...]:
        """The expected exit statuses."""
        return tuple(self.status) if isinstance(self.status, list) else (self.status,)

    @property
    def tcp(self) -> dict[str, Law | str | int]:
        """The TCP settings of the role, by key."""
        return {key: value for key in OF_TCP if (value := getattr(self, key)) is not None}

    @property
    def tcp_in_words(self) -> str:
        """The TCP settings as text."""
        sizes = (("receive buffer", self.receive_buffer), ("send buffer", self.send_buffer))
        control = [f"TCP {name_of(self.congestion_control)}"] if self.congestion_control is not None else []
        pacing = [] if self.pacing is None else ["paced" if self.pacing else "not paced"]
        buffers = [f"{name} {SIZE.format(size)}" for name, size in sizes if size is not None]
        return ", ".join([*control, *buffers, *pacing])

    @property
    def measured_file(self) -> PurePosixPath | None:
        """The path of the program's file of measures on the node."""
        return PurePosixPath(self.folder or "", self.measures) if isinstance(self.measures, str) else None

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the texts with names to fill in: (path of the key, text)."""
        for index, word in enumerate(self.command or ()):
            yield ("command", index), word
        for name, value in self.environment.items():
            yield ("environment", name), value
        if self.ready is not None and self.ready.http is not None:
            yield ("ready", "http"), self.ready.http
        for index, word in enumerate((self.ready.command if self.ready is not None else None) or ()):
            yield ("ready", "command", index), word

    def commands(self) -> Iterator[tuple[tuple[str, ...], list[str]]]:
        """Yield the commands run on the node: (path of the key, command); an empty one is the node's own."""
        yield ("command",), self.command or []
        if self.ready is not None and self.ready.command is not None:
            yield ("ready", "command"), self.ready.command

    def misfits(self, group: NodeGroup) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield keys that do not fit the nodes of the group: (path, problem and remedy)."""
        if self.command is None and not group.backend.has_program:
            yield ("command",), 'missing: write the program and its arguments, command = "iperf3 --server"'
        for source, target in self.copy_in.items():
            if source == pathlib.Path("/"):
                yield ("copy_in", str(source)), "this is a whole file system: write the folder that the program needs"
            if group.backend.shares_files and PurePosixPath(target).is_absolute():
                yield (
                    ("copy_in", str(source)),
                    f"a {group.backend.kind} node shares this machine's files, and '{target}' is one of them: "
                    "write a relative path, in the node's own folder",
                )
        if isinstance(self.measures, LineMeasures):
            for name in sorted(self.measures.units.keys() - set(self.measures.names)):
                hint = did_you_mean(name, self.measures.names)
                groups = ", ".join(self.measures.names)
                yield ("measures", "units", name), f"the expression has no such group: {hint}it has {groups}"
        elif (
            (path := self.measured_file) is not None
            and group.backend.keeps_files
            and (path.is_absolute() or ".." in path.parts)
        ):
            yield (
                ("measures",),
                f"'{path}' is outside of the node's own folder, where files of earlier runs are: write a relative "
                "path, and no absolute 'folder'",
            )


def _as_role(value: Any) -> Any:
    if isinstance(value, list):
        raise refusal("a list, but a role has one group: write one, and another [apps.NAME] for each other group")
    return {"on": value} if isinstance(value, str) else value


AnyRole = Annotated[Role, BeforeValidator(_as_role, json_schema_input_type=Name | Role)]
"""A role in the file: a table, or the name of the node group alone."""
