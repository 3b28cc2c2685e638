"""Scenarios from Compose files and Kubernetes manifests: what is mapped, what is listed, what is refused."""

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from any_text import ODD_TEXT, many, value_or_line
from cellbed.importing import Choices, ImportedFileError, Written, read_compose, read_manifests, save, write
from cellbed.importing.documents import documents
from cellbed.support.errors import CellbedError
from cellbed_node.processes import find
from deployments import GUESTBOOK, SHOP
from in_process import cellbed


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    for folder in ("site", "api"):
        (tmp_path / folder).mkdir()
    (tmp_path / "api.env").write_text("export LEVEL='debug' # for now\nURL=\"http://web\"\nno=maybe\n")
    (tmp_path / "compose.yaml").write_text(SHOP)
    return tmp_path


def written(
    path: Path, *, variables: dict[str, str] | None = None, profiles: tuple[str, ...] = (), **choices: Any
) -> Written:
    """The scenario of a Compose file, which its reader accepts."""
    out = path.parent / "out.toml"
    found = write(read_compose(path, variables or {}, profiles), Choices(out=out, **choices), "test")
    save(found, out)
    return found


def notes(found: Written, level: str) -> dict[str, str]:
    return {note.key: note.text for note in found.notes if note.level == level}


def test_a_compose_file_becomes_node_groups_and_applications(shop: Path) -> None:
    found = written(shop / "compose.yaml", variables={"FROM_SHELL": "1"}, placed={"queue": "cloud"})
    made = tomllib.loads(found.text)
    nodes, apps = made["nodes"], made["apps"]
    assert {name: node["class"] for name, node in nodes.items()} == {
        "endpoint": "endpoint", "web": "edge", "api": "edge", "worker": "edge", "queue": "cloud",
    }  # fmt: skip
    assert made["sites"] == {"shop": {"core": "base-edge"}, "shop-cloud": {"core": "eu-west-3"}}
    assert {name: node.get("site") for name, node in nodes.items()} == {
        "endpoint": None, "web": "shop", "api": "shop", "worker": "shop", "queue": "shop-cloud",
    }  # fmt: skip
    assert nodes["web"] | {"backend": 0} == {
        "class": "edge", "site": "shop", "count": 2, "cpus": 0.5, "memory": "64 MiB", "backend": 0,
    }  # fmt: skip
    assert nodes["web"]["backend"] == {
        "kind": "container",
        "image": "nginx:1.27",
        "mounts": [
            {"source": "site", "target": "/usr/share/nginx/html", "read_only": True},
            {"source": "out.files/web/0-greeting", "target": "/etc/greeting", "read_only": True},
        ],
    }
    assert (shop / "out.files/web/0-greeting").read_text() == "hello $you\n"
    assert apps["web"] == {
        "kind": "program",
        "after": ["api"],
        "balance": "connection",
        "server": {"on": "web", "restart": "always", "ready": {"port": 80, "timeout": "120 s"}},
    }
    assert nodes["api"]["backend"] == {
        "kind": "container",
        "image": "shop-api",
        "command": ["serve", "--name", "a {b}"],
        "environment": {"LEVEL": "debug", "URL": "http://web", "no": "no", "FROM_SHELL": "1"},
    }
    assert nodes["api"]["aliases"] == ["backend.internal"]
    assert apps["api"]["server"]["folder"] == "/srv"
    assert apps["api"]["server"]["ready"] == {
        "command": ["/bin/sh", "-c", "curl -f http://localhost:9000/{{health}}"],
        "timeout": "165 s",
    }
    assert apps["queue"]["server"]["ready"]["command"] == ["redis-cli", "ping"]
    assert nodes["worker"]["backend"]["entrypoint"] == ["work"]
    assert apps["worker"]["server"]["on"] == "worker"
    assert apps["worker"]["after"] == ["api", "queue"]
    assert nodes["queue"]["aliases"] == ["shop_queue"]
    assert "podman build -t shop-api --target release --build-arg GO=1.22" in found.text


def test_unmapped_settings_are_listed_with_their_lines(shop: Path) -> None:
    found = written(shop / "compose.yaml")
    lost, rest = notes(found, "not mapped"), notes(found, "not needed")
    assert set(lost) == {"services.web.volumes", "services.api.privileged", "services.worker.privileged", "names"}
    assert "'backend.internal'" in lost["names"]  # that of api, which worker extends
    assert "container engine" in lost["services.web.volumes"]
    assert {"services.web.labels", "services.debug.profiles", "services.api.env_file"} < set(rest)
    assert "NEVER_SET" in "".join(rest.values())
    assert set(notes(found, "differs")) >= {"networks", "memory"}
    lines = {note.key: SHOP.splitlines()[note.place.line - 1].strip() for note in found.notes}
    assert lines["services.api.privileged"] == "privileged: true"
    assert lines["services.web.labels"] == "labels: {team: shop}"
    assert all(str(note) in found.text for note in found.notes if note.is_loss)


def test_profiles_and_options_choose(shop: Path) -> None:
    found = written(shop / "compose.yaml", profiles=("debug",), load="web", up="1 Mbit/s", duration="9 s")
    made = tomllib.loads(found.text)
    assert made["nodes"]["debug"]["backend"]["image"] == "busybox"
    assert made["apps"]["load"]["url"] == "http://{server.address}/"
    assert made["nodes"][made["apps"]["load"]["client"]]["class"] == "endpoint"
    assert made["duration"] == "9 s"
    assert made["links"]["mobile"]["up"] == "1 Mbit/s"


def test_workers_are_at_the_edge_and_clients_on_endpoints(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        "services:\n"
        "  web: {image: x, ports: ['80:80'], depends_on: [redis]}\n"
        "  redis: {image: x, ports: ['6379:6379']}\n"
        "  worker: {image: x, depends_on: [redis]}\n"
        "  client: {image: x, depends_on: [web]}\n"
        "  watcher: {image: x}\n"
    )
    found = written(tmp_path / "compose.yaml")
    edge = ("web", "redis", "worker", "watcher")
    assert {name: it for name, (_, it) in found.nodes.items()} == dict.fromkeys(edge, "edge") | {"client": "endpoint"}
    done = cellbed("import", "compose", tmp_path / "compose.yaml", "-o", tmp_path / "x.toml")
    assert "endpoint: client; edge: web, redis, worker, watcher (another place: --place SERVICE=CLASS)" in done.stderr


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {0}}}
spec: {{replicas: {1}, template: {{spec: {{containers: [{{name: c, image: x}}]}}}}}}
---
"""


def test_a_service_of_0_replicas_has_no_node_and_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for zero in ("scale: 0", "deploy: {replicas: 0}"):
        path.write_text(f"services: {{web: {{image: x, depends_on: [none]}}, none: {{image: x, {zero}}}}}")
        found = write(read_compose(path, {}), Choices(), "test")
        assert set(found.nodes) == {"web"}
        assert "after" not in tomllib.loads(found.text)["apps"]["web"]
        assert notes(found, "differs") == {"none.replicas": "0 replicas: the service has no node"}
    path.write_text("services: {none: {image: x, scale: 0}}")
    with pytest.raises(CellbedError, match="all services have 0 replicas"):
        write(read_compose(path, {}), Choices(), "test")
    path.write_text(DEPLOYMENT.format("web", 2) + DEPLOYMENT.format("none", 0))
    assert set(write(read_manifests([path]), Choices(), "test").nodes) == {"web"}


def test_what_services_read_is_limited_in_all(tmp_path: Path) -> None:
    (tmp_path / "many.env").write_text("".join(f"V{number}=x\n" for number in range(1000)))
    services = "".join(f"  s{number}: {{image: x, env_file: many.env}}\n" for number in range(150))
    (tmp_path / "x.yaml").write_text(f"services:\n{services}")
    with pytest.raises(ImportedFileError, match="more than 100000 values with all that is aliased and read"):
        read_compose(tmp_path / "x.yaml", {})


RESOLVED = """
name: shop
services:
  web:
    command: null
    depends_on: {api: {condition: service_started, required: true}}
    entrypoint: null
    environment: {PRICE: "5$$"}
    image: nginx:1.27
    networks: {default: null}
    ports: [{mode: ingress, target: 80, published: "8080", protocol: tcp}]
    volumes: [{type: bind, source: FOLDER, target: /x, bind: {create_host_path: true}, volume: {}}]
  api:
    build: {context: FOLDER, dockerfile: Dockerfile}
    networks: {default: null}
networks: {default: {name: shop_default, ipam: {}}}
"""


def test_a_file_that_compose_has_resolved_is_imported_without_loss(tmp_path: Path) -> None:
    (tmp_path / "resolved.yaml").write_text(RESOLVED.replace("FOLDER", str(tmp_path)))
    found = written(tmp_path / "resolved.yaml")
    assert {note.key for note in found.notes if note.is_loss} == set()
    backend = tomllib.loads(found.text)["nodes"]["web"]["backend"]
    assert (backend["environment"], len(backend["mounts"])) == ({"PRICE": "5$"}, 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("services: {a: {image: 'x:${TAG:-1}'}}", ":1: '${TAG:-1}' is a variable: resolve"),
        ("services:\n  a:\n    command: [echo, $HOME]", ":3: '$HOME' is a variable"),
        ("services: {a: &a {image: x, labels: [$$, $$A]}, b: *a}\nx-y: ${", ":2: '${' is a variable"),
        ("include: [compose.yaml]", ":1: include: other files are not read"),
        ("services: {a: {image: x}, b: {extends: a}}", ":1: services.b.extends: other services are not read"),
        ("services: {a: {image: x, env_file: a.env}}", "a.env:2: not a line NAME=VALUE, or one with a variable"),
    ],
)
def test_a_file_that_only_compose_can_resolve_is_one_error_with_the_command(
    text: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "compose.yaml").write_text(text)
    for line in ("B=$A", 'B="a', "B='a'b", 'B="\\t"', "B: b", "B C=1"):
        (tmp_path / "a.env").write_text(f"A='$'\n{line}\n")
        with pytest.raises(ImportedFileError) as caught:
            read_compose(tmp_path / "compose.yaml", {})
        assert problem in str(caught.value)
        assert f"`docker compose -f {tmp_path}/compose.yaml config > resolved.yaml`" in str(caught.value)


def test_files_of_variables_are_read(tmp_path: Path) -> None:
    lines = "# c\n\nexport A=1\nB=a b # c $x\nC=a# b\nD='$A' # c\nE=\"q\"\nG\nH\nI=\nJ= #\n"
    (tmp_path / "a.env").write_text(lines)
    (tmp_path / "compose.yaml").write_text("services: {a: {image: x, env_file: a.env}}")
    (service,) = read_compose(tmp_path / "compose.yaml", {"H": "shell"}).services
    assert service.environment == {
        "A": "1", "B": "a b", "C": "a# b", "D": "$A", "E": "q", "H": "shell", "I": "", "J": "",
    }  # fmt: skip


def test_manifests_become_node_groups_and_applications(tmp_path: Path) -> None:
    (tmp_path / "guestbook.yaml").write_text(GUESTBOOK)
    out = tmp_path / "scenario.toml"
    found = write(read_manifests([tmp_path / "guestbook.yaml"]), Choices(out=out), "test")
    save(found, out)
    made = tomllib.loads(found.text)
    node, app = made["nodes"]["guestbook"], made["apps"]["guestbook"]
    assert found.nodes["load"] == ("load", "endpoint")
    assert (node["class"], node["count"], node["cpus"], node["memory"]) == ("edge", 3, 0.5, "128 MiB")
    assert node["aliases"][:2] == ["frontend", "frontend.default"]
    assert node["backend"]["entrypoint"] == ["serve"]
    assert node["backend"]["command"] == ["--listen=0.0.0.0:8080", "$(HOST)"]
    assert node["backend"]["environment"] == {"P_X": "1", "HOST": "0.0.0.0", "COLOUR": "no", "PASSWORD": "hush",
                                              "SELF": "http://$(ADDRESS):8080"}  # fmt: skip
    assert app["server"]["environment"] == {"ADDRESS": "{node.address}"}
    assert app["server"]["ready"] == {"http": "http://{node.address}:80/ready", "timeout": "120 s"}
    (mount,) = node["backend"]["mounts"]
    assert mount["target"] == "/etc/app/conf.ini"
    assert (tmp_path / mount["source"]).read_text() == "[a]"
    sidecar = made["nodes"]["guestbook-sidecar"]["backend"]
    assert (sidecar["image"], sidecar["command"]) == (
        "example/logs",
        ["http://guestbook:80/x", "127.0.0.1:9000", "localhost:8080"],
    )
    assert "in guestbook-sidecar 'localhost:80' becomes 'guestbook:80'" in "".join(notes(found, "differs").values())
    assert made["apps"]["load"]["client"] == {"on": "load"}
    lost = notes(found, "not mapped")
    assert "Ingress/public" in lost
    assert {key.rpartition(".")[2] for key in lost} == {"nodeSelector", "Ingress/public", "name"}
    assert {"serviceAccountName", "requests", "type"} <= {key.rpartition(".")[2] for key in notes(found, "not needed")}


def test_ports_of_services_become_those_of_containers(tmp_path: Path) -> None:
    urls = "[frontend:80, 'http://frontend/x', 'http://frontend.default:80', my-frontend:80, frontend:8000]"
    text = GUESTBOOK.replace("targetPort: web", "targetPort: 8080").replace("image: example/load", f"&, args: {urls}")
    text = text.replace("[a]", "proxy_pass http://frontend;").replace("&", "image: example/load")
    (tmp_path / "a.yaml").write_text(text)
    services = {each.name: each for each in read_manifests([tmp_path / "a.yaml"]).services}
    assert services["guestbook"].files == {"/etc/app/conf.ini": b"proxy_pass http://frontend:8080;"}
    found = write(read_manifests([tmp_path / "a.yaml"]), Choices(), "test")
    assert (
        "'frontend:80' becomes 'frontend:8080'" in notes(found, "differs")["Service/frontend.spec.ports[0].targetPort"]
    )
    assert tomllib.loads(found.text)["nodes"]["load"]["backend"]["command"] == [
        "frontend:8080", "http://frontend:8080/x", "http://frontend.default:8080", "my-frontend:80", "frontend:8000",
    ]  # fmt: skip
    assert "write the scenario with --out" in notes(found, "not mapped")["files"]
    # The Service's name belongs to the container behind its port.
    one, two = "ports: [{port: 80, targetPort: web}]", "ports: [{port: 9000}, {port: 80, targetPort: web}]"
    (tmp_path / "a.yaml").write_text(GUESTBOOK.replace(one, two))
    imported = read_manifests([tmp_path / "a.yaml"])
    assert [each.name for each in imported.services if "frontend" in each.aliases] == ["guestbook-sidecar"]
    (note,) = (each for each in imported.notes if each.key == "Service/frontend.spec.ports[1].port")
    assert note.text == "'frontend' is the node of guestbook-sidecar; write guestbook for this"


def additions(value: Any, key: str, closed: tuple[str, ...]) -> list[tuple[Any, str]]:
    """Every mapping of a document except below keys whose names are the user's, with its path."""
    found = []
    if isinstance(value, dict):
        if not key.endswith(closed):
            found.append((value, key))
        for name, each in value.items():
            found += additions(each, f"{key}.{name}", closed)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            found += additions(each, f"{key}[{number}]", closed)
    return found


USERS = ("labels", "environment", "x-common", "services", "networks", "volumes", "configs", "depends_on", ".args",
         "matchLabels", "data", "selector", "limits", "requests", "metadata", "nodeSelector", "cache", "annotations",
         ".front", ".back", "debug", "emptyDir")  # fmt: skip


@pytest.mark.parametrize("kind", ["compose", "kube"])
def test_no_key_is_dropped_silently(kind: str, shop: Path) -> None:
    documents_ = documents(SHOP if kind == "compose" else GUESTBOOK, "example")
    # Of an object that is not mapped no keys are listed.
    mapped = [each for each in documents_ if each and each.get("kind") != "Ingress"]
    places = [each for document in mapped for each in additions(document, "", USERS)]
    assert len(places) > 15
    for index, (mapping, key) in enumerate(places):
        mapping["surprise"] = index
        (shop / "changed.yaml").write_text("---\n".join(json.dumps(each) + "\n" for each in documents_ if each))
        del mapping["surprise"]
        read = read_compose(shop / "changed.yaml", {}) if kind == "compose" else read_manifests([shop / "changed.yaml"])
        found = write(read, Choices(), "test")
        assert any(note.key.endswith("surprise") and note.is_loss for note in found.notes), key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("services: [", "compose.yaml:2: not YAML"),
        ("a: 1", "compose.yaml:1: not a Compose file: no services"),
        ("- 1", "compose.yaml:1: not a Compose file"),
        ("services: {a: {image: x, image: y}}", "'image' appears twice"),
        ("services: &s {a: *s}", "a value cannot contain itself"),
        ("services: {a: !!python/object:os.system {}}", "unknown tag"),
        ("a: {b: {{ .Values.x }}}", "render a template"),
        ("services:\n a:\n  ports: ['80']", "compose.yaml:2: services.a: neither 'image' nor 'build'"),
        ("services: {a: {image: x, ports: [x]}}", "'x' is not a port"),
        ("services: {a: {image: x, depends_on: [b]}}", "services.a.depends_on.b: no such service"),
        ("services: {a: {image: x, depends_on: [b]}, b: {image: x, depends_on: [a]}}", "depends on itself"),
        ("services: {a: !reset x}", "unknown tag '!reset'"),
        ("services: {a: {image: x, mem_limit: many}}", "'many' is not a size"),
        ("services: {a: {image: x, cpus: -1}}", "not a number from 0 on"),
        ("services: {a: {image: x, restart: maybe}}", "services.a.restart"),
        ("services: {a: {image: x, healthcheck: {test: [curl, x]}}}", "healthcheck.test: a list begins with NONE, CMD"),
        ('services: {a: {image: "a\\0"}}', "zero byte"),
        ("a: " + "[" * 100, "nested more than 64 deep"),
        ("\n".join(["a0: &a0 [1]", *(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]" for n in range(1, 9))]), "more than 100000"),
    ],
)
def test_malformed_compose_files_are_one_error_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(text)
    with pytest.raises(ImportedFileError, match=message) as caught:
        read_compose(tmp_path / "compose.yaml", {})
    assert len(str(caught.value).splitlines()) == 1


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    for content, message in ((b"a: \xff", "not UTF-8"), (b" " * (1 << 20) + b"a", "larger than 1 MiB")):
        path.write_bytes(content)
        with pytest.raises(ImportedFileError, match=message):
            read_compose(path, {})
    with pytest.raises(ImportedFileError, match="No such file"):
        read_manifests([tmp_path / "absent.yaml"])


@pytest.mark.parametrize(
    ("text", "value"),
    [("no", "no"), ("22:22", "22:22"), ("0644", 420), ("0o644", 420), ("0x1F", 31), ("1_000", 1000), ("080", "080"),
     ("1.10", 1.1), ("1e3", 1000.0), ("~", None), ("", None), ("True", True), ("'1'", "1"), ("!!str 1", "1"),
     ("2026-01-01", "2026-01-01"), ("." , "."), ("1.2.3", "1.2.3"), (".inf", ".inf")],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    (found,) = documents(f"a: {text}", "x")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


TOKENS = st.sampled_from(
    ["{}", "[]", "null", "-1", "1e9", "''", '"\\0"', "*a", "&a x", "!!int x", "{a: 1}", "[1]", "\n", "  ", ":", ": ",
     "${A", "$", "a=b", "/", "..", "~nobody/x", "8080:80", "5m", "1Gi", "{{x}}", "{", "!reset x", "<<: *a", "\t", "'"]
)  # fmt: skip


@many
@given(
    kind=st.sampled_from(["compose", "kube"]),
    edits=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 30), TOKENS | ODD_TEXT), max_size=3) | ODD_TEXT,
)
def test_any_text_is_a_scenario_or_one_error(kind: str, edits: Any, tmp_path: Path) -> None:
    text = edits if isinstance(edits, str) else SHOP if kind == "compose" else GUESTBOOK
    for at, length, token in edits if isinstance(edits, list) else []:
        text = text[: at % len(text)] + token + text[at % len(text) + length :]
    path = tmp_path / "input.yaml"
    path.write_text(text)
    made = value_or_line(lambda: read_compose(path, {}) if kind == "compose" else read_manifests([path]))
    if made is not None:
        save(write(made, Choices(), "test"), None)


def test_the_command_prints_a_scenario_and_what_is_not_mapped(shop: Path) -> None:
    done = cellbed("import", "compose", "compose.yaml", "--place", "queue=cloud", cwd=shop, status=0)
    assert tomllib.loads(done.stdout)["nodes"]["queue"]["class"] == "cloud"
    assert "core link of its own" not in done.stderr
    assert "balance" in tomllib.loads(done.stdout)["apps"]["web"]
    line = SHOP[: SHOP.index("privileged")].count("\n") + 1
    assert f"compose.yaml:{line}: not mapped: services.api.privileged" in done.stderr
    out = cellbed("import", "compose", "compose.yaml", "-o", "shop.toml", "--strict", "--json", cwd=shop, status=1)
    assert json.loads(out.stdout)["scenario"] == (shop / "shop.toml").read_text()
    assert json.loads(out.stdout)["services"]["web"] == {"nodes": "web", "class": "edge"}
    assert "nodes.web.backend.image: " in cellbed("run", "shop.toml", "--dry-run", cwd=shop).stderr
    again = cellbed("import", "compose", "compose.yaml", "-o", "shop.toml", cwd=shop).stdout
    assert again.startswith("shop.toml: 4 services; settings that are not mapped or differ: ")


def test_a_load_is_suggested_for_a_service_that_no_other_uses(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        "services:\n  redis: {image: redis, expose: [6379]}\n"
        "  web: {image: web, ports: ['8000:8000'], depends_on: [redis]}\n"
    )
    done = cellbed("import", "compose", "compose.yaml", "--map", "redis=localhost/redis", cwd=tmp_path)
    assert '# server = "web"' in done.stdout
    assert ":8000/" in done.stdout
    nodes = tomllib.loads(done.stdout)["nodes"]
    assert [nodes[name]["backend"]["image"] for name in ("redis", "web")] == ["localhost/redis", "web"]


def test_a_folder_of_manifests_is_imported(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    for name in ("a.yaml", "b.yml"):
        pod = "{apiVersion: v1, kind: Pod, metadata: {name: NAME}, spec: {containers: [{name: x, image: i}]}}"
        (tmp_path / "manifests" / name).write_text(pod.replace("NAME", name[0]))
    done = cellbed("import", "kube", "manifests/", "--json", cwd=tmp_path, status=0)
    assert set(json.loads(done.stdout)["services"]) == {"a", "b"}
    for words in (["--build"], ["--profile", "debug"]):
        refused = cellbed("import", "kube", "manifests/", *words, cwd=tmp_path, status=2)
        assert refused.stderr.startswith(f"error: {words[0]}: manifests have none")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--place", "wb=edge"], "--place: no service 'wb': did you mean 'web'"),
        (["--load", "wb"], "--load: no service 'wb': did you mean 'web'"),
        (["--map", "rediss=localhost/redis"], "--map: no service has the image 'rediss': did you mean 'redis"),
        (["--map", "redis"], "--map: 'redis': write IMAGE=LOCAL"),
        (["--place", "web=moon"], "write NAME=CLASS with one of endpoint, edge, cloud"),
        (["--memory", "lots"], "--memory: "),
        (["--up", "no-such.up"], "links.mobile.up: unknown trace"),
        (["--duration", "1 sec"], "duration: '1 sec' has an unknown unit"),
        (["other.yaml"], "merge them with `docker compose -f compose.yaml -f other.yaml config > resolved.yaml`"),
    ],
)
def test_a_wrong_option_is_one_error_and_leaves_no_file(words: list[str], message: str, shop: Path) -> None:
    before = {path.name for path in shop.iterdir()}
    done = cellbed("import", "compose", "compose.yaml", "--out", "shop.toml", *words, cwd=shop, status=2)
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert {path.name for path in shop.iterdir()} == before


def test_names_that_no_node_can_have_are_aliases(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        f"services: {{a.b: {{image: x}}, a-b: {{image: x}}, {'n' * 40}: {{image: x, links: ['a.b:db']}}, "
        "a-b-0: {image: x}, tower: {image: x}, endpoint: {image: x}, load: {image: x}}"
    )
    nodes = tomllib.loads(written(tmp_path / "compose.yaml", load="load").text)["nodes"]
    assert list(nodes) == ["endpoint2", "a-b", "a-b-2", "n" * 32, "a-b-0-2", "tower-2", "endpoint", "load"]
    assert nodes["a-b"]["aliases"] == ["a.b", "db"]
    assert "aliases" not in nodes["tower-2"]


def test_a_second_application_is_added_to_a_scenario(shop: Path) -> None:
    cellbed("import", "compose", "compose.yaml", "-o", "shop.toml", "--up", "3 Mbit/s", cwd=shop, status=0)
    before = (shop / "shop.toml").read_text()
    (shop / "book.yaml").write_text(GUESTBOOK)
    cellbed("import", "kube", "book.yaml", "-o", "shop.toml", "--add", cwd=shop, status=0)
    text = (shop / "shop.toml").read_text()
    assert text.startswith(before)
    both, first = tomllib.loads(text), tomllib.loads(before)
    assert both["links"] == first["links"]
    alone = tomllib.loads(cellbed("import", "kube", "book.yaml", cwd=shop).stdout)
    assert len(both["apps"]) == len(first["apps"]) + len(alone["apps"])
    assert len(both["sites"]) == len(first["sites"]) + len(alone["sites"])
    again = cellbed("import", "compose", "compose.yaml", "-o", "shop.toml", "--add", cwd=shop, status=2)
    assert "the scenario has a node 'web' already" in again.stderr
    assert (shop / "shop.toml").read_text() == text
    refused = cellbed("import", "compose", "compose.yaml", "--add", cwd=shop, status=2)
    assert "--add needs the scenario" in refused.stderr


@pytest.mark.skipif(find("podman") is None, reason="podman is not installed")
def test_images_with_a_context_are_built(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {a: {build: ., ports: [80]}}")
    (tmp_path / "Containerfile").write_text('FROM scratch\nCOPY compose.yaml /\nCMD ["/compose.yaml"]\n')
    engine = {"CONTAINERS_STORAGE_CONF": str(tmp_path / "storage.conf")}
    (tmp_path / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\nrunroot = "{tmp_path}/run"\ngraphroot = "{tmp_path}/graph"\n'
    )
    done = cellbed("import", "compose", "compose.yaml", "--build", "-o", "a.toml", cwd=tmp_path, env=engine, status=0)
    assert "Build its image" not in (tmp_path / "a.toml").read_text()
    image = tomllib.loads((tmp_path / "a.toml").read_text())["nodes"]["a"]["backend"]["image"]
    found = subprocess.run(["podman", "image", "exists", image], env=os.environ | engine, check=False)
    assert found.returncode == 0
    (tmp_path / "Containerfile").write_text("FROM scratch\nCOPY missing /\n")
    done = cellbed("import", "compose", "compose.yaml", "--build", cwd=tmp_path, env=engine, status=2)
    assert "--build: the image of 'a' was not built; the command was: podman build" in done.stderr
