"""Transports, schedulers and admission policies of C headers."""

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from cellbed import CellbedError
from cellbed.extension.files import TablesError
from cellbed_datacentre import Simulation, simulate
from cellbed_datacentre.file import describe
from in_process import cellbed

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler: sudo apt install gcc")
ROOT = Path(__file__).parents[1]
HEADERS = Path(__file__).parent / "headers"
EXAMPLES = ROOT / "examples"
TOPOLOGY = {"kind": "leaf-spine", "racks": 2, "hosts_per_rack": 3, "spines": 2}


def files(flows: int, load: float, mean: str = "30 kB") -> dict[str, Any]:
    """Return tables of a simulation without its transport."""
    sizes = {"kind": "lognormal", "mean": mean, "deviation": "200 kB"}
    return {"topology": TOPOLOGY, "traffic": {"flows": flows, "load": load, "sizes": sizes}}


def assert_equal(one: Simulation, other: Simulation) -> None:
    """Compare all results of two simulations."""
    assert one.packet_hops == other.packet_hops
    tables = [{"flows": each.flows, "ports": each.ports, "queues": each.queues, **each.radio} for each in (one, other)]
    assert tables[0].keys() == tables[1].keys()
    for name, table in tables[0].items():
        assert table.equals(tables[1][name]), name


@pytest.mark.parametrize("number", range(6))
def test_pfabric_as_a_header_has_the_results_of_the_built_in(number: int) -> None:
    draw = random.Random(number)
    content = files(draw.choice([2, 4, 50, 400]), draw.uniform(0.2, 1.2), draw.choice(["3 kB", "30 kB", "300 kB"]))
    content["topology"] = TOPOLOGY | {"buffer": draw.choice(["4 kB", "20 kB", "36864 B"])}
    keys = {
        "initial_window": draw.randint(1, 30),
        "largest_window": 30,
        "timeout": f"{draw.randint(5, 100)} us",
        "probe_after": draw.randint(0, 5),
    }
    content |= {"seed": number, "sampling": "20 us"}
    built_in = simulate(content | {"transport": {"kind": "pfabric", **keys}})
    header = {"kind": str(HEADERS / "pfabric.h"), **keys}
    assert_equal(built_in, simulate(content | {"transport": header}))


def test_a_receiver_driven_header_uses_timers_of_hosts_and_pulled_packets() -> None:
    content = files(400, 0.6) | {"transport": str(HEADERS / "granted.h")}
    found = simulate(content)
    assert_equal(found, simulate(content))
    assert found.flows["slowdown"].null_count() == 0
    assert 1.5 < found.flows["slowdown"].median() < 4  # type: ignore[operator]
    alone = simulate(content | {"traffic": content["traffic"] | {"flows": 1, "sizes": "1460000 B"}})
    assert alone.flows["slowdown"][0] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("key", ["scheduler", "admission"])
@pytest.mark.parametrize("number", range(6))
def test_schedulers_and_policies_as_headers_have_the_results_of_the_built_in(key: str, number: int) -> None:
    draw = random.Random(number)
    content = files(draw.choice([2, 4, 60]), draw.uniform(0.3, 1.5))
    radio: dict[str, Any] = {
        "users": draw.choice([1, 2, 8]),
        "cqi": draw.choice(["fixed", "gauss-markov"]),
        "load_of": "cell" if key == "scheduler" else "cu-link",
        "buffer": draw.choice(["15 kB", "90 kB", "3 MB"]),
        "readings": {"cut": draw.choice(["compete", "first"])},
    }
    transports = ["pdcell", "tcp", "phost"] if key == "scheduler" else ["pdcell", "tcp"]
    content |= {"seed": number, "transport": {"kind": draw.choice(transports)}}
    names = {"scheduler": ["proportional-fair", "shortest-remaining", "round-robin"], "admission": ["htd", "lqd"]}
    name = draw.choice(names[key])
    built_in = simulate(content | {"radio": radio | {key: name}})
    assert_equal(built_in, simulate(content | {"radio": radio | {key: str(HEADERS / f"{name}.h")}}))


def test_the_three_kinds_work_together_and_depend_on_the_seed_alone() -> None:
    path = EXAMPLES / "own.toml"
    assert_equal(simulate(path, seed=3), simulate(path, seed=3))
    assert not simulate(path, seed=3).flows.equals(simulate(path, seed=4).flows)


def test_a_weight_favours_the_first_users() -> None:
    content = files(80, 3.0) | {"transport": {"kind": "pdcell"}}
    radio = {"users": 8, "load_of": "cell", "cqi": {"kind": "fixed", "low": 9, "high": 9}}
    scheduler = {"kind": str(EXAMPLES / "weighted-fair.h"), "favoured": 4}

    def mean_of_favoured(weight: float) -> float:
        found = simulate(content | {"radio": radio | {"scheduler": scheduler | {"weight": weight}}})
        return float(found.flows.filter(found.flows["user"] < 4)["fct_s"].mean())  # type: ignore[arg-type]

    assert mean_of_favoured(10.0) < mean_of_favoured(1.0) < mean_of_favoured(0.1)


START = "void transport_start(struct sim *sim, struct flow *flow) { %s }\n"
RECEIVE = "void transport_receive(struct sim *sim, struct flow *flow, const struct packet *packet) { %s }\n"
STATES = "struct flow_state { u32 x; };\nstruct host_state { u32 x; };\n"
SEND = "struct packet packet = { .to = flow->destination, .size = 40%s }; sim_send(sim, flow, flow->source, &packet);"


def transport(start: str = "", receive: str = "", more: str = "", options: str = "") -> str:
    """Return a header of a transport with two functions."""
    return f'{options}\n#include "transport.h"\n{STATES}{more}\n{START % start}{RECEIVE % receive}'


RANK = "double scheduler_rank(struct sim *sim, struct cell *cell, const struct candidate *candidate) { %s }\n"
OFFER = "u32 admission_offer(struct sim *sim, struct buffer *buffer, u32 user, u32 bytes) { %s }\n"
CELL = "struct user_state {};\nstruct cell_state {};\n"
WRONG = {
    "crash": (transport("*(volatile u32 *)8 = 0;"), r"transport_start crashed \(SIGSEGV\)"),
    "division": (
        transport("volatile u32 zero = flow->state->x; flow->state->x = 7 / zero;"),
        r"transport_start crashed \(SIGFPE\)",
    ),
    "exit": (transport("exit(0);", options="#include <stdlib.h>"), "transport_start ended the process"),
    "loop": (transport("for (volatile int i = 0;; i++);"), "transport_start did not return within"),
    "timers": (
        transport(
            "sim_set_timer(sim, flow, 0, 0);",
            more="void transport_timer(struct sim *sim, struct flow *flow, u32 timer)"
            "{ sim_set_timer(sim, flow, sim->now, 0); }",
        ),
        "transport_timer at .*without a later time",
    ),
    "own error": (transport('sim_fail(sim, "my text");'), "transport_start at .* ps: my text"),
    "no data": (transport(SEND % "0, .sequence = flow->packets"), "sends data packet . of flow 0, which has"),
    "wrong size": (transport(SEND % "1"), "with 401 bytes: it has"),
    "too large": (transport(SEND % "00"), "sends a packet of 4000 bytes: write 40 to 1500"),
    "priority": (transport(SEND % ", .priority = 8"), "of priority 8: write 0 to 7"),
    "to itself": (
        transport(SEND % ", .to = flow->source"),
        "sends a packet of flow 0 from host . to host .: its hosts",
    ),
    "from another": (
        transport((SEND % "").replace("flow->source", "(flow->source + 1) % 6")),
        "sends a packet of flow . from host . to host .: its hosts are . and .",
    ),
    "no such host": (transport("sim_kick(sim, 99);"), "names host 99: there are 6 hosts"),
    "no such state": (transport("sim_host(sim, 99);"), "names host 99"),
    "early end": (transport("sim_close(sim, flow);"), "closes flow 0 after 0 of"),
    "no flow": (transport("sim_close(sim, NULL);"), "passes NULL instead of a flow"),
    "memory": (transport("sim_memory(sim, flow, 1ull << 40);"), "more than 4 GiB of sim_memory"),
    "late timer": (transport("sim_set_timer(sim, flow, ~0ull, 0);"), "sets a timer at 18446744073709551615 ps"),
    "no timer": (transport("sim_set_timer(sim, flow, 0, 0);"), "transport_timer at .* does not define this function"),
    "no pull": (transport("sim_kick(sim, flow->source);"), "transport_pull at .* does not define this function"),
    "pull": (
        transport(
            "sim_kick(sim, flow->source);",
            more="u32 transport_pull(struct sim *sim, u32 host, struct packet *packet) { return 77; }",
        ),
        "transport_pull at .*: returns flow 77, which is not open",
    ),
    "no receive": (f'#include "transport.h"\n{STATES}{START % ""}', "transport_receive. .define this function"),
    "no helper": (transport("help();", more="void help(void);"), "transport: .*help. .define this function"),
    "no static helper": (transport("help();", more="static void help(void);"), "transport: .*help. .define this"),
    "no include": ("int x;", "transport: .*not a transport: include transport.h"),
    "syntax": (transport("flow->"), "cannot be compiled: .*expected identifier"),
    "misnamed": (transport(more="void transport_tmier(void) {}"), "'transport_tmier'.*helper function must be static"),
    "variable": (transport(more="static u32 count;", start="count++;"), "share the variable 'count'"),
    "no transport": (f'#include "scheduler.h"\n{CELL}{RANK % "return 0;"}', "transport: .*not a transport: include"),
    "no scheduler": (
        transport(options="#define TRANSPORT_USERS 1"),
        r"radio.scheduler: .*not a scheduler: include",
        {"radio": {"scheduler": "own.h"}},
    ),
    "no policy": (
        transport(options="#define TRANSPORT_USERS 1"),
        r"radio.admission: .*not an admission",
        {"radio": {"admission": "own.h"}},
    ),
    "state": (
        transport().replace("struct host_state { u32 x; }", "struct host_state { u32 x[300000]; }"),
        "transport: .*larger than 1 MiB: shorten its arrays",
    ),
    "ports": (transport(options="#define TRANSPORT_PORTS 17"), "transport: .*TRANSPORT_PORTS is unknown: define"),
    "marks": (transport(options="#define TRANSPORT_MARK_ABOVE -1"), "transport: .*TRANSPORT_MARK_ABOVE is negative"),
    "constant": (transport(options="#define CONSTANTS(constant) constant(x, y)"), "default of x is 'y': write one"),
    "twice": (transport(options="#define CONSTANTS(c) c(x, 1) c(x_ps, 1)"), "two keys would be called 'x'"),
    "hidden": (
        transport(options="#define CONSTANTS(c) c(x, 1)\n#undef CONSTANTS"),
        "transport: .*write one list CONSTANTS into the header itself",
    ),
    "included": (
        transport(options='#include "list.h"'),
        "transport: .*write one list CONSTANTS into the header itself",
    ),
    "users": (transport(), "transport: .*radio cells need TRANSPORT_USERS: define", {"radio": {"users": 2}}),
    "rank": (f'#include "scheduler.h"\n{CELL}{RANK % "return NAN;"}', r"scheduler_rank at .*not a number \(NaN\)"),
    "scheduler": (f'#include "scheduler.h"\n{CELL}', "radio.scheduler: .*scheduler_rank. .define this function"),
    "full": (f'#include "admission.h"\n{CELL}{OFFER % "return ADMISSION_ADMIT;"}', "into a full buffer"),
    "replace": (f'#include "admission.h"\n{CELL}{OFFER % "return 3;"}', "returns 3 without ADMISSION_REPLACES"),
    "no user": (
        f'#define ADMISSION_REPLACES\n#include "admission.h"\n{CELL}{OFFER % "return 3;"}',
        "drops a packet of user 3: there are 2 users",
    ),
    "no queue": (
        f'#include "admission.h"\n{CELL}{OFFER % "buffer->queues[70000].threshold = 1; return ADMISSION_REFUSE;"}',
        r"admission_offer crashed \(SIGSEGV\): a wrong pointer or index",
    ),
    "index below 0": (
        f'#include "scheduler.h"\nstruct user_state {{ u32 x; }};\nstruct cell_state {{}};\n'
        f"{RANK % 'return cell->user_states[candidate->user - 1 - candidate->user].x;'}",
        r"scheduler_rank crashed \(SIGSEGV\)",
    ),
    "no packet": (
        f'#define ADMISSION_REPLACES\n#include "admission.h"\n{CELL}{OFFER % "return 1 - user;"}',
        "drops a packet of user ., which has none",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_header_ends_with_an_error_that_names_it(name: str, tmp_path: Path) -> None:
    text, expected, *more = WRONG[name]
    (tmp_path / "own.h").write_text(str(text))
    (tmp_path / "list.h").write_text("#define CONSTANTS(constant) constant(x, 1)\n")
    content: dict[str, Any] = files(30, 0.8) | {"transport": "own.h"}
    for key in ("scheduler", "admission"):
        if f'"{key}.h"' in str(text) and name != "no transport":
            content |= {"transport": {"kind": "pdcell"}, "radio": {"users": 2, "buffer": "3 kB", key: "own.h"}}
    with pytest.raises(CellbedError, match=expected) as error:  # type: ignore[arg-type]
        simulate(content | (more[0] if more else {}), folder=tmp_path)
    assert re.search(r"\bown\.h\b", str(error.value))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"kind": "./none.h"}, "transport: .*none.h"),
        ({"kind": "./folder.h"}, "transport: .*folder.h"),
        ({"kind": "./window.h", "windw": 3}, "transport.windw: unknown constant; did you mean 'window'?"),
        ({"kind": "./window.h", "window": 0.5}, "transport.window: 0.5 is not a whole number"),
        ({"kind": "./window.h", "window": -1}, "transport.window: -1 is not a whole number"),
        ({"kind": "./window.h", "window": True}, "transport.window: 'True' is not a number"),
        ({"kind": "./window.h", "window": [1]}, "transport.window: .* is not a number"),
        ({"kind": "./window.h", "window": 2**80}, "transport.window: .* is not a number"),
        ({"kind": "./window.h", "timeout": "9999999 s"}, "transport.timeout: .* is too long"),
        ({"kind": "./own/transport.h"}, "transport: .*the interface has a file 'transport.h': rename"),
        ({"kind": "./window.h", "timeout": 5}, "transport.timeout: 5 is not a duration"),
        ({"kind": "./window.h", "timeout": "5 kB"}, "transport.timeout: "),
        ("./window.c", "transport: './window.c' cannot be used here: write transport = "),
        (3, "transport: 3 is not text: write transport = "),
        ({"kind": "udp"}, 'transport.kind: .udp. is not known: .*write one of .*"pfabric", "./FILE.h"$'),
    ],
)
def test_what_a_file_writes_of_a_header_is_checked(table: Any, expected: str, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "window.h", tmp_path)
    (tmp_path / "folder.h").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "own/transport.h").write_text("")
    with pytest.raises(CellbedError, match=expected):
        simulate(files(2, 0.5) | {"transport": table}, folder=tmp_path)


def test_a_sweep_compares_headers_and_runs_an_edited_one_again(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "own.toml", tmp_path)
    (tmp_path / "options.h").write_text("")
    for name in ("window.h", "weighted-fair.h", "dynamic-threshold.h"):
        shutil.copy(EXAMPLES / name, tmp_path)
    header = tmp_path / "window.h"
    header.write_text(header.read_text().replace('"transport.h"', '"transport.h"\n#include "options.h"'))
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(
        'name = "windows"\nsimulation = "own.toml"\nrepetitions = 1\n'
        '[factors.window]\nkey = "transport.window"\nlevels = [10, 20]\n'
        '[factors.scheduler]\nkey = "radio.scheduler"\nlevels = ["round-robin", "./weighted-fair.h"]\n'
    )

    def trials() -> set[str]:
        cellbed("sweep", sweep, "--jobs", 2, cwd=tmp_path, status=0)
        return {path.name for path in (tmp_path / "sweeps/windows/trials").iterdir()}

    first = trials()
    assert len(first) == 4
    assert trials() == first
    (tmp_path / "options.h").write_text("/* another version */\n")
    assert len(trials() - first) == 4


def test_a_folder_and_a_dry_run_name_the_header(tmp_path: Path) -> None:
    done = cellbed("simulate", EXAMPLES / "own.toml", "--dry-run", cwd=tmp_path, status=0)
    assert done.stdout.startswith("own: ./window.h, leaf-spine of 8 hosts\n")
    done = cellbed("simulate", EXAMPLES / "own.toml", "--json", "--out", tmp_path / "out", cwd=tmp_path, status=0)
    assert {"./window.h", "./weighted-fair.h", "./dynamic-threshold.h"} <= set(
        re.findall(r"\./[a-z-]+\.h", done.stdout)
    )


@pytest.mark.parametrize("transport", ["phost", "tcp", str(EXAMPLES / "window.h")])
@pytest.mark.parametrize("admission", ["lqd", str(HEADERS / "lqd.h"), str(HEADERS / "htd.h")])
def test_dropped_packets_of_a_transport_that_forgets_them_are_refused(transport: str, admission: str) -> None:
    content = files(2, 0.5) | {"name": "drops", "transport": {"kind": transport}, "radio": {"admission": admission}}
    if transport == "tcp" or admission.endswith("htd.h"):
        describe(content, Path())
    else:
        with pytest.raises(TablesError) as error:
            describe(content, Path())
        (problem,) = error.value.problems
        assert problem.path == ("radio", "admission")
        assert "ends at the central unit, will not send again" in problem.text


@pytest.mark.parametrize("scheduler", ["proportional-fair", "shortest-remaining", "round-robin"])
def test_headers_serve_several_cells_as_what_is_built_in(scheduler: str) -> None:
    def run(scheduler: str, admission: str) -> Simulation:
        own = {"users": 4, "dus": 2, "scheduler": scheduler, "admission": admission}
        content = {
            "seed": 3,
            "topology": {"kind": "leaf-spine", "racks": 2, "hosts_per_rack": 2, "spines": 1},
            "transport": {"kind": "pdcell"},
            "traffic": {
                "flows": 80,
                "load": 0.3,
                "sizes": {"kind": "lognormal", "mean": "20 kB", "deviation": "30 kB"},
            },
            "radio": [{"host": "host-0", **own}, {"host": "host-1", "dual": True, **own}],
        }
        return simulate(content)

    built_in, headers = run(scheduler, "htd"), run(str(HEADERS / f"{scheduler}.h"), str(HEADERS / "htd.h"))
    assert headers.flows.equals(built_in.flows)
    assert headers.ports.equals(built_in.ports)
