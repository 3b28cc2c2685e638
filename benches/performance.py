"""The figures of docs/explanation/performance.md that have a target, by one command of at most ten minutes.

    sudo MAHIMAHI=/path/to/prefix RATTAN=/path/to/rattan .venv/bin/python benches/performance.py

Programs take turns within a case, so that other work of the machine affects all of them; peers that are missing are
named. Each figure stands beside its target: a value, or a multiple of another program's in the same case. The figures
and the state of the machine go to build/benches/COMMIT.json. The table also shows how each figure has changed since the
file of the nearest earlier commit, or --before FILE.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import comparison
import emulator_targets
import large_runs
import start_up
from emulator_nodes import trace_stages, write_trace
from measuring import Figures, interleave, median_figures
from peers.shells import Shell

from cellbed.support.whole_files import write_whole

ROOT = Path(__file__).parents[1]
OURS = "cellbed shell"


@dataclass(frozen=True, slots=True)
class Target:
    """The largest value that a figure of ours may have, or the smallest.

    value: the limit; with `of`, a multiple of the figure of the program `of` in the same case.
    """

    figure: str
    value: float
    of: str = ""
    smallest: bool = False

    def limit(self, figures: Mapping[str, Figures]) -> float | None:
        """Return the limit, or None without the other program's figure."""
        if not self.of:
            return self.value
        other = figures.get(self.of, {}).get(self.figure)
        return None if other is None else self.value * other

    def holds(self, figure: float, limit: float) -> bool:
        """Return whether a figure is within the limit."""
        return figure >= limit if self.smallest else figure <= limit


@dataclass(frozen=True, slots=True)
class Case:
    """A case to measure. programs: a function for each program, which measures once."""

    group: str
    name: str
    programs: Mapping[str, Callable[[], Figures]]
    targets: tuple[Target, ...]


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep `count` processes busy."""
    loops = [subprocess.Popen([sys.executable, "-I", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def path_cases(shells: list[Shell], seconds: float, folder: Path) -> Iterator[Case]:
    """Return cases of delays and throughputs of each program."""

    def measured(row: comparison.Case, shell: Shell, loops: int) -> Callable[[], Figures]:
        def once() -> Figures:
            with busy_loops(loops):
                try:
                    return row.measure(shell, row.link, seconds, folder)
                except comparison.NotMeasuredError as failure:
                    print(f"{shell.name}: {failure}", file=sys.stderr)
                    return {}

        return once

    rows = {row.name: row for row in comparison.cases()}
    for loops in (0, 1, 2, 4):
        targets = [Target("least", 0, smallest=True)]
        if not loops:
            targets += [Target("p50", 1.2, "plain veth"), Target("p99", 2, "plain veth"), Target("cores", 0.02)]
        if loops == 2:
            targets += [Target("p99", 1, "Mahimahi"), Target("p99", 1, "Rattan")]
        programs = {shell.name: measured(rows["delay"], shell, loops) for shell in shells}
        yield Case("delay", f"{rows['delay'].what}, {loops} busy loops", programs, tuple(targets))
    wanted = {
        "tcp-1000": (Target("% of the link", 99, smallest=True), Target("cores", 0.10)),
        "tcp-10000": (Target("% of the link", 99, smallest=True), Target("cores", 0.6)),
        "udp": (Target("packets/s", 1, "plain veth", smallest=True),),
        "idle": (Target("% of a core", 0.02),),
    }
    for name, limits in wanted.items():
        programs = {shell.name: measured(rows[name], shell, 0) for shell in shells}
        yield Case("throughput", rows[name].what, programs, limits)
    ours = {shell.name: measured(rows["tcp-100-20ms"], shell, 0) for shell in shells}
    nested = {OURS: ours["cellbed's mm-link"], "one shell": ours[OURS]}
    yield Case("throughput", "mm-delay with mm-link inside, 100 Mbit/s", nested, (Target("cores", 1, "one shell"),))


def other_cases(seconds: float, folder: Path) -> Iterator[Case]:
    """Return cases of our programs alone: emulator, start, predictions and reports."""

    def case(group: str, name: str, measure: Callable[[], Figures], *targets: Target) -> Case:
        return Case(group, name, {OURS: measure}, targets)

    rate = 25 * 10**9
    fast = emulator_targets.flow_over(trace_stages(write_trace(folder, rate), rate // 40), rate)
    yield case("emulator", "trace of 25 Gbit/s", lambda: fast(seconds), Target("of_asked", 0.95, smallest=True))
    far = emulator_targets.far_cases()
    programs = {name: partial(far[kind], seconds) for name, kind in ((OURS, "UDP"), ("plain veth", "UDP, veth"))}
    target = Target("goodput", 10_000, smallest=True)
    yield Case("emulator", "UDP, 10 Gbit/s over 112 ms, Mbit/s", programs, (target,))
    for endpoints, most_s in ((1, 0.8), (64, 4), (500, 30)):
        targets = [Target("first_request_s", most_s), Target("memory_mib", 2048)]
        yield case("start", f"run of {endpoints} endpoints", _numbered(start_up.once, folder, endpoints), *targets)
    stand = _numbered(start_up.stand, folder, 500)
    yield case("start", "500 nodes without programs", stand, Target("down_s", 2))
    beside = {OURS: partial(classify, 4, folder), "quiet": partial(classify, 0, folder)}
    yield Case("busy", "image classification beside 4 busy loops", beside, (Target("p50 ms", 1.02, "quiet"),))
    for name, measure, largest in large_runs.cases(folder):
        yield case("runs", name, measure, *(Target(*limit) for limit in largest))


def classify(loops: int, folder: Path) -> Figures:
    """Measure the median of requests to a service over LTE beside busy loops, ms."""
    out = folder / f"busy-{time.monotonic_ns()}"
    text = (ROOT / "scenarios" / "offload-lte.toml").read_text().partition("[[faults]]")[0]
    scenario = folder / "busy.toml"
    scenario.write_text(text.replace('duration = "60 s"', 'duration = "10 s"'))
    with busy_loops(loops):
        large_runs.cost("run", str(scenario), "--out", str(out))
    summary = json.loads(next(out.glob("*/summary.json")).read_text())
    return {"p50 ms": 1e3 * summary["applications"][0]["percentiles"][0]["value"]}


def _numbered(measure: Callable[[Path, int, int], Figures], folder: Path, endpoints: int) -> Callable[[], Figures]:
    """Return a function that measures into a new folder each time."""
    return lambda: measure(folder, time.monotonic_ns(), endpoints)


def machine() -> dict[str, Any]:
    """Return the state of the machine: processors, kernel, load, and ticks of /proc/stat by kind since boot."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    ticks = Path("/proc/stat").read_text().split()[1 : len(names) + 1]
    return {
        "processors": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
        "memory_kb": int(Path("/proc/meminfo").read_text().split()[1]),
        "ticks": dict(zip(names, map(int, ticks), strict=True)),
    }


def earlier_file(folder: Path) -> Path | None:
    """Return the file of the nearest earlier commit that has one."""
    history = subprocess.run(["git", "-C", str(ROOT), "log", "--format=%H", "-1000"], capture_output=True, text=True)
    files = (folder / f"{commit}.json" for commit in history.stdout.split()[1:])
    return next((path for path in files if path.exists()), None)


def show(cases: list[Case], medians: Mapping[str, Mapping[str, Figures]], before: Mapping[str, Any]) -> None:
    """Print each figure that has a target, as a table for documents."""
    print("| case | figure | cellbed | target | | others | before |\n| --- | --- | --- | --- | --- | --- | --- |")
    for case in cases:
        found = medians[case.name]
        for target in case.targets:
            ours = found[OURS].get(target.figure)
            limit = target.limit(found)
            others = (f"{name} {it[target.figure]:.4g}" for name, it in found.items() if name != OURS and it)
            then = before.get(case.name, {}).get(OURS, {}).get(target.figure)
            cells = [
                case.name,
                target.figure,
                "–" if ours is None else f"{ours:.4g}",
                "–" if limit is None else f"{'≥' if target.smallest else '≤'} {limit:.4g}",
                "not measured"
                if ours is None or limit is None
                else "met"
                if target.holds(ours, limit)
                else "**missed**",
                ", ".join(others),
                "" if ours is None or not then else f"{then:.4g} ({ours / then - 1:+.0%})",
            ]
            print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Measure, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="measurements of each case (default: 1)")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one measurement (default: 4)")
    parser.add_argument("--only", choices=("delay", "throughput", "emulator", "start", "busy", "runs"), action="append")
    parser.add_argument("--json", type=Path, help="file to write (default: build/benches/COMMIT.json)")
    parser.add_argument("--before", type=Path, help="file to compare with")
    asked = parser.parse_args()
    comparison.enter_network()
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    path = asked.json or ROOT / "build" / "benches" / f"{commit or 'unknown'}.json"
    earlier = asked.before or earlier_file(path.parent)
    state, began = machine(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cellbed-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shells, absent = comparison.shells_here(folder)
        cases = [*path_cases(shells, asked.seconds, folder), *other_cases(asked.seconds, folder)]
        cases = [case for case in cases if not asked.only or case.group in asked.only]
        rounds: dict[str, dict[str, list[Figures]]] = {}
        for number, case in enumerate(cases, start=1):
            print(f"[{number}/{len(cases)}] {case.name}", file=sys.stderr, flush=True)
            rounds[case.name] = interleave(case.programs, asked.rounds)
    medians = {name: {program: median_figures(runs) for program, runs in of.items()} for name, of in rounds.items()}
    result = {
        "commit": commit,
        "took_s": time.monotonic() - began,
        "before": state,
        "after": machine(),
        "rounds": rounds,
        "medians": medians,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(result, indent=1))
    then = json.loads(earlier.read_text()) if earlier else {}
    show(cases, medians, then.get("medians", {}))
    print(*absent, sep="\n")
    print(f"{result['took_s']:.0f} s; figures: {path}" + (f"; before: commit {then['commit'][:10]}" if then else ""))


if __name__ == "__main__":
    main()
