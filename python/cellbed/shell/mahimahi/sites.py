"""``mm-webrecord`` and ``mm-webreplay``: record the sites that any program loads, and replay them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, ip_address
from pathlib import Path

from cellbed.shell.gateway import Gateway
from cellbed.shell.link import ShellLink
from cellbed.shell.mahimahi.arguments import read
from cellbed.shell.mahimahi.shells import run
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine import certificates, process
from cellbed.workloads.browsing.origins import Served, nginx, nginx_command
from cellbed.workloads.web import mahimahi
from cellbed.workloads.web import record as recording
from cellbed.workloads.web.archived import find, write_warc
from cellbed.workloads.web.replay import forwarding
from cellbed_node import inputs
from cellbed_node.errors import shorten
from cellbed_node.processes import find as find_program
from cellbed_node.temporary import temporary_folder
from cellbed_node.web import warc
from cellbed_node.web.site import Origin, Site, SiteError, address

Agents = dict[str, subprocess.Popen[bytes]]
_FIRST_ADDRESS = IPv4Address("198.18.0.1")
"""First address of origins without a recorded address, from the range for network tests (RFC 2544)."""
_VARIABLES = (*certificates.VARIABLES, "CURL_CA_BUNDLE")
_RULES = """\
table inet {table} {{
  chain recorded {{
    type nat hook prerouting priority -110; policy accept;
    iifname "{device}" tcp dport {{ 80, 443 }} redirect to :{port}
    iifname "{device}" udp dport 443 drop
  }}
}}
"""


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a temporary folder whose files the command may read as another user."""
    with temporary_folder() as folder:
        folder.chmod(0o755)
        yield folder


def webrecord(arguments: Sequence[str]) -> int:
    """Run ``mm-webrecord``: record what a program loads over HTTP and HTTPS."""
    line = read(
        arguments,
        "Usage: mm-webrecord FOLDER [COMMAND...]\n\nRecord requests and replies over HTTP (port 80) and HTTPS (443).",
        1,
    )
    target = Path(line.words[0])
    if (target / mahimahi.SITE).exists():
        raise SiteError(f"{target}: has a recording: name another folder, or remove it")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SiteError(f"{target}: {error.strerror}: name another folder") from None
    with _folder() as folder:

        def serve(gateway: Gateway, stack: contextlib.ExitStack, agents: Agents) -> list[tuple[str, str]]:
            listener = stack.enter_context(process.listener(gateway.outer, (str(gateway.pair.gateway), 0)))
            port, options = listener.getsockname()[1], ["--mode", "transparent"]
            agents["the proxy"] = stack.enter_context(recording.proxy(folder, listener, options, gateway.outer))
            rules = _RULES.format(table=gateway.table, device=gateway.device, port=port)
            process.run(["nft", "-f", "-"], text=rules, place=gateway.outer)
            return []

        more = dict.fromkeys(_VARIABLES, str(folder / recording.AUTHORITY))
        status = run(line, ShellLink(), "[record] ", serve=serve, more=more, program="mm-webrecord")
        made = recording.read(folder)
        for url, why in made.failed.items():
            print(f"mm-webrecord: no reply: {shorten(url)}: {shorten(why)}", file=sys.stderr)
        write_warc(target / mahimahi.SITE, Site(str(target), made.exchanges))
    return status


def webreplay(arguments: Sequence[str]) -> int:
    """Run ``mm-webreplay``: replay a recording to a program that has no other network."""
    line = read(
        arguments,
        "Usage: mm-webreplay FOLDER|FILE|NAME [COMMAND...]\n\n"
        "Replay a folder of mm-webrecord, a WARC file, or a recorded site of the archive.",
        1,
    )
    path = Path(line.words[0])
    site = mahimahi.read(path) if path.is_dir() else warc.read(path if path.exists() else find(line.words[0]))
    for entry in site.left_out.named:
        print(f"mm-webreplay: left out: {entry}", file=sys.stderr)
    for program in ("nginx", certificates.PROGRAM, "ip"):
        if find_program(program) is None:
            package = {"nginx": "nginx-light", "ip": "iproute2"}.get(program, program)
            raise SiteError(f"{program} is not installed: sudo apt install {package}")
    with _folder() as folder:
        addresses = _addresses(site)
        hosts = {origin.host for origin in addresses}
        certificates.issue(folder, {"site": sorted(hosts | {at for each in addresses.values() for at in each})})
        lines = [f"{at} {origin.host}" for origin, each in addresses.items() for at in each]
        names = Path("/etc/hosts")
        there = inputs.text(names) if names.exists() else ""
        (folder / "hosts").write_text("\n".join([*lines, there]), encoding="utf-8")
        (folder / "resolv.conf").write_text("# All names are in /etc/hosts.\n", encoding="utf-8")
        write_warc(folder / "site.warc", site)
        (folder / "site.warc").chmod(0o600)

        def serve(gateway: Gateway, stack: contextlib.ExitStack, agents: Agents) -> list[tuple[str, str]]:
            _serve(folder, addresses, gateway, stack, agents)
            return [(str(folder / name), f"/etc/{name}") for name in ("hosts", "resolv.conf")]

        more = dict.fromkeys(_VARIABLES, str(folder / certificates.AUTHORITY))
        return run(line, ShellLink(), "[replay] ", serve=serve, offline=True, more=more, program="mm-webreplay")


def _addresses(site: Site) -> dict[Origin, list[str]]:
    """Return the addresses of each origin: the recorded ones, or a unique one.

    Recorded loopback addresses are kept only if the host name means loopback: the loopback inside a shell is another
    one.
    """
    found = {}
    for number, (origin, exchanges) in enumerate(site.origins.items()):
        means_it = origin.host == "localhost" or address(origin.host) is not None
        known = {at for each in exchanges if (at := each.address) and (means_it or not ip_address(at).is_loopback)}
        found[origin] = sorted(known) or [str(_FIRST_ADDRESS + number)]
    return found


def _serve(
    folder: Path, addresses: dict[Origin, list[str]], gateway: Gateway, stack: contextlib.ExitStack, agents: Agents
) -> None:
    """Start the servers of origins at their addresses inside. Errors: :class:`CellbedError`."""
    socket, config = str(folder / "socket"), folder / "replies.json"
    config.write_text(json.dumps({"site": str(folder / "site.warc"), "socket": socket}), encoding="utf-8")
    ends = sorted({(at, origin.port, origin.scheme) for origin, each in addresses.items() for at in each})
    inside = gateway.inner()
    lines = [f"address add {at} dev lo" for at in {at for at, _, _ in ends} if not ip_address(at).is_loopback]
    process.run(["ip", "-batch", "-"], text="\n".join([*lines, ""]), place=inside)
    directives = forwarding(socket)
    served = [
        Served("_", f"[{at}]" if ":" in at else at, port, *directives, secured=scheme == "https")
        for at, port, scheme in ends
    ]
    files = [str(folder / "site" / file) for file in certificates.FILES]
    (folder / "nginx.conf").write_text(nginx(served, files, http2=True), encoding="utf-8")
    pipe = subprocess.PIPE
    command = [sys.executable, "-P", "-m", "cellbed_node.web.matcher", "--config", str(config)]
    replies = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
    stack.callback(_end, replies)
    assert replies.stdout is not None
    if not replies.stdout.readline():
        raise CellbedError("the program that finds replies did not start")
    log = folder / "log"
    with log.open("wb") as file:
        server = process.spawn(
            nginx_command(folder, folder / "nginx.conf"), inside, stdout=file, stderr=file, keep_capabilities=True
        )
    stack.callback(process.end, server)
    recording.wait_listening(server, ends[0][1], log, "nginx")
    agents |= {"the servers": server, "the program that finds replies": replies}


def _end(replies: subprocess.Popen[bytes]) -> None:
    """End the program that finds replies, and print its notes."""
    output, _ = replies.communicate()
    for line in output.splitlines():
        print(f"mm-webreplay: {json.loads(line).get('text', '')}", file=sys.stderr)
