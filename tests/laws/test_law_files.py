"""Laws as files: found, read, compiled, and refused with one error."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cellbed.laws.law import FOLDER, Law, LawError, Target, find, load_shipped, read
from cellbed.support.user_folders import cache_folder
from descendants import descendants
from host_laws import HostLaw
from law_examples import fixed


def test_shipped_laws_name_their_publication() -> None:
    laws = {"vegas", "exll", "c2tcp", "copa", "vivace", "bbr3", "verus", "sprout", "highspeed-cellbed", "htcp-cellbed"}
    assert load_shipped().keys() > laws
    assert not {"reno", "cubic", "bbr"} & load_shipped().keys()  # these are the kernel's
    for law in load_shipped().values():
        assert law.title
        assert len(law.description) > 50


def test_law_of_a_user_is_found_by_its_path_and_runs(tmp_path: Path) -> None:
    fixed(tmp_path / "mine.h", window=7)
    law = find("./mine.h", tmp_path)
    assert (law.name, law.title, law.description) == ("mine", "A window of 7 segments", "A law of tests.")
    assert HostLaw(law.path).ack(1.0) == 7


def test_law_is_compiled_again_when_an_included_file_changes(tmp_path: Path) -> None:
    law = read(fixed(tmp_path / "mine.h", ack='\n#include "more.inc"\n'))
    (tmp_path / "more.inc").write_text("")
    first = law.compiled("host")
    assert law.compiled("host") == first
    (tmp_path / "more.inc").write_text("window->ssthresh = 9;")
    assert law.compiled("host") != first


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("My_Law.h", "", "not the name of a law"),
        ("law.txt", "", "not the name of a law"),
        ("empty.h", "", "missing title"),
        ("other.h", "/* mine: A law */", "names the law 'mine', not 'other'"),
        ("untitled.h", "/* untitled: */", "missing title"),
        ("binary.h", "\0\1\2", "missing title"),
        ("pipe.h", None, "a pipe, not a file"),
    ],
)
def test_malformed_law_is_refused_with_its_path(tmp_path: Path, name: str, content: str | None, problem: str) -> None:
    if content is None:
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(LawError, match=problem) as refused:
        read(tmp_path / name)
    assert name in str(refused.value)


@pytest.mark.parametrize(
    ("faults", "problem"),
    [
        ({"ack": "no_such_function();"}, r"mine\.h:15:\d+: error:.*no_such_function"),
        ({"ack": '\n#include "law.h"\nlaw_min(1);'}, "cannot be compiled: "),
        ({"ack": "extern int missing(void); window->ssthresh = missing();"}, "undefined symbol: missing"),
        ({"ack": "law->unused = 100 / sample->lost;"}, "crashed in virtual time"),
        ({"ack": "*(volatile u32 *)8 = 1;"}, "crashed in virtual time"),
        ({"window": 0}, "set cwnd to 0 segments"),
        ({"ack": "window->ssthresh = 0;"}, "set ssthresh to 0 segments, .*: keep at least 1"),
    ],
)
def test_faulty_law_is_one_line_with_its_file_and_no_other_folder(
    tmp_path: Path, faults: dict[str, Any], problem: str
) -> None:
    law = read(fixed(tmp_path / "mine.h", **faults))
    with pytest.raises(LawError, match=problem) as refused:
        law.load()
    (line,) = str(refused.value).splitlines()
    assert line.startswith(str(law.path))
    assert str(FOLDER) not in line
    assert str(cache_folder()) not in line


def test_missing_function_of_a_law_is_named(tmp_path: Path) -> None:
    text = fixed(tmp_path / "mine.h").read_text()
    (tmp_path / "mine.h").write_text(text[: text.index("LAW_INLINE void law_event")])
    with pytest.raises(LawError, match=r"'law_event'.*must have this function"):
        read(tmp_path / "mine.h").compiled("host")


@pytest.mark.parametrize(
    ("name", "near"), [("vegass", "vegas"), ("htcp", "htcp-cellbed"), ("highspeed", "highspeed-cellbed")]
)
def test_unknown_law_is_refused_with_a_near_name(name: str, near: str) -> None:
    with pytest.raises(LawError, match=rf"'{name}': did you mean '{near}'\? see `cellbed cc ls`"):
        find(name, Path())


@pytest.mark.parametrize("target", ["host", "kernel"])
@pytest.mark.parametrize(
    ("outside", "inside"),
    [("", "static u32 shared; window->ssthresh = shared++;"), ("u32 shared;", "window->ssthresh = shared++;")],
)
def test_variable_that_all_connections_share_is_refused(
    tmp_path: Path, target: Target, outside: str, inside: str
) -> None:
    text = fixed(tmp_path / "mine.h", ack=inside).read_text()
    (tmp_path / "mine.h").write_text(text.replace("struct law {", f"{outside}\nstruct law {{"))
    with pytest.raises(LawError, match="all connections share the variable 'shared'"):
        read(tmp_path / "mine.h").compiled(target)


def test_constants_are_no_shared_variables(tmp_path: Path) -> None:
    constants = "static const u32 steps[] = {1, 2, 3}; window->ssthresh = steps[sample->acked % 3];"
    assert read(fixed(tmp_path / "mine.h", ack=constants)).load()


@pytest.mark.parametrize("target", ["host", pytest.param("kernel", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "source",
    [
        '\n#include "pipe"\n',
        '\n#include "/dev/zero"\n',
        "static char large[2147483647] = {1}; law->unused = large[*text];",
    ],
)
def test_compiler_is_limited_and_leaves_no_process_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Target, source: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("cellbed.laws.law._PATIENCE_S", 5)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # other tests compile laws, too
    law = read(fixed(tmp_path / "mine.h", ack=source))
    with contextlib.suppress(LawError):
        law.compiled(target)
    assert not any(str(law.path).encode() in line for line in descendants(os.getpid()).values())
    assert not list((tmp_path / "temporary").iterdir())
    assert not [file for file in cache_folder().rglob("*") if file.name.startswith(".")]


@pytest.mark.parametrize("name", ["cubic", "reno", "vegas"])
def test_own_law_with_the_name_of_another_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LawError, match="rename"):
        read(fixed(tmp_path / f"{name}.h"))


def test_missing_compiler_is_an_error_with_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    law: Law = read(fixed(tmp_path / "mine.h"))
    with pytest.raises(LawError, match="apt install clang"):
        law.compiled("kernel")
    with pytest.raises(LawError, match="apt install gcc"):
        law.compiled("host")
