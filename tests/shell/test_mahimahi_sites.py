"""mm-webreplay and mm-webrecord with real programs, in a world of network namespaces."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellbed.shell.mahimahi.__main__ import main
from cellbed.testbed.machine import certificates
from cellbed.workloads.web import har, mahimahi
from cellbed.workloads.web.archived import write_warc
from cellbed_node.processes import find as find_program
from shell_world import INTERNET, ORDINARY_USER, World, missing, open_world, without_remark
from site_examples import ADDRESSES, BODIES, PAGE
from site_examples import har as example
from site_examples import mahimahi as write_mahimahi

pytestmark = [
    pytest.mark.needs_tun,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    *(
        pytest.mark.skipif(find_program(program) is None, reason=f"{program} is not installed")
        for program in ("nginx", "curl", "openssl")
    ),
]
HTTP = """
import http.server, ssl, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = self.path.encode() * 1000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
plain, secured = (http.server.ThreadingHTTPServer(("0.0.0.0", port), Handler) for port in (80, 443))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*sys.argv[1:])
secured.socket = context.wrap_socket(secured.socket, server_side=True)
threading.Thread(target=plain.serve_forever, daemon=True).start()
print("ready", flush=True)
secured.serve_forever()
"""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as world:
        world.install_mahimahi()
        yield world


def run(world: World, *command: str, user: int = 0) -> subprocess.CompletedProcess[str]:
    return world.run(world.on_path(*command), user=user)


def test_a_folder_is_replayed_at_its_addresses_to_any_program_in_any_shells(world: World) -> None:
    folder = world.folder / "recorded"
    write_mahimahi(folder)
    before = world.traces()
    get = "curl -sSf -w '%{remote_ip} %{http_version} %{http_code}\\n' -o"
    script = f"{get} {folder}/one {PAGE} && {get} /dev/null 'https://cdn.shop.test/b.png?size=2&stamp=7'"
    script += f"; {get} /dev/null https://www.shop.test/none; curl -sS --connect-timeout 1 http://{INTERNET}/"
    folder.chmod(0o777)
    done = run(world, "mm-webreplay", str(folder), "mm-delay", "20", "sh", "-c", script, user=ORDINARY_USER)
    said = done.stdout.splitlines()
    assert said[:2] == [f"{ADDRESSES[host]} 2 200" for host in ("www.shop.test", "cdn.shop.test")], done.stderr
    assert (folder / "one").read_bytes() == BODIES[PAGE][1]
    assert said[2].endswith(" 404")
    assert len(said) == 3  # there is no other network
    assert "1 requests matched no recorded one" in done.stderr
    assert "https://www.shop.test/none" in done.stderr
    assert world.traces() == before


def test_a_warc_file_is_replayed_and_the_status_is_the_commands(world: World) -> None:
    (world.folder / "x.har").write_text(json.dumps(example()))
    write_warc(world.folder / "x.warc.gz", har.read(world.folder / "x.har"))
    script = "curl -s --compressed -A Tester/1.0 https://www.shop.test/a.css; exit 7"
    done = run(world, "mm-webreplay", str(world.folder / "x.warc.gz"), "sh", "-c", script)
    assert done.stdout.encode() == BODIES["https://www.shop.test/a.css"][1], done.stderr
    assert (done.returncode, done.stderr) == (7, "")


def test_a_bad_recording_is_an_error_before_the_command_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "save.1").write_bytes(b"no message")
    for path, problem in ((tmp_path, "not a whole file of mm-webrecord"), (Path("/nowhere"), "No such file")):
        assert main(["mm-webreplay", str(path), "touch", str(tmp_path / "started")]) == 1
        assert problem in capsys.readouterr().err
        assert not (tmp_path / "started").exists()


@pytest.mark.slow
@pytest.mark.skipif(find_program("mitmdump") is None, reason="mitmproxy is not installed")
@pytest.mark.parametrize("user", [0, ORDINARY_USER])
def test_a_program_is_recorded_and_replayed(world: World, user: int) -> None:
    authority = world.folder / "certificates" / certificates.AUTHORITY
    if user == 0:
        authority.parent.mkdir()
        certificates.issue(authority.parent, {"server": ["secure.test"]})
        world.serve(HTTP, *(str(authority.parent / "server" / file) for file in certificates.FILES), internet=True)
    folder = world.home(user) / "recorded"
    before = world.traces()
    urls = f"http://{INTERNET}/some?thing=1", "https://secure.test/other"
    bodies = "/some?thing=1" * 1000, "/other" * 1000
    get = ["curl", "-sS", *urls]
    # The proxy checks the server's certificate, the command that of the proxy.
    command = ["env", f"SSL_CERT_FILE={authority}", "mm-webrecord", str(folder), "mm-delay", "5"]
    done = run(world, *command, *get, "--resolve", f"secure.test:443:{INTERNET}", user=user)
    assert done.stdout == "".join(bodies), done.stderr
    assert without_remark(done.stderr) == ""
    assert world.traces() == before
    found = mahimahi.read(folder).exchanges
    assert [(each.url, each.body.decode(), each.address) for each in found] == [
        (url, body, INTERNET) for url, body in zip(urls, bodies, strict=True)
    ]
    done = run(world, "mm-webreplay", str(folder), *get, user=user)
    assert done.stdout == "".join(bodies), done.stderr
    again = run(world, "mm-webrecord", str(folder), "true", user=user)
    assert again.returncode == 1
    assert "has a recording" in again.stderr
