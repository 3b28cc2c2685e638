"""Servers inside a shell that are reached from outside, through the emulated link."""

import subprocess
from ipaddress import ip_address

import pytest

from cellbed.shell.publish import Published, parse
from cellbed.support.errors import CellbedError
from shell_world import (
    ECHO,
    HOST,
    INTERNET,
    INTERNET_IPV6,
    ORDINARY_USER,
    World,
    cellbed,
    missing,
    next_line,
    python,
    without_remark,
)

HOST_IPV6 = f"{INTERNET_IPV6[:-1]}2"

# Says who asks, on the way in 100 kB, on the way back 100 kB; prints how long the answer took.
EXCHANGE = """
import socket, sys, time
begin = time.monotonic()
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 200)
s.sendall(b"x" * 100_000)
s.shutdown(socket.SHUT_WR)
answer = s.makefile("rb").read()
print(time.monotonic() - begin, answer[:40].split()[0].decode(), len(answer))
"""
# Answers when the client has said all, with the client's address and as many bytes as it got.
SERVER = """
import socket, sys
server = socket.create_server(("::", 80), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    connection, peer = server.accept()
    got = connection.makefile("rb").read()
    connection.sendall(peer[0].encode() + b" " + got)
    connection.close()
"""
ASK_UDP = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
s.settimeout(100)
# Connected: only what comes from the address that was asked is an answer.
s.connect((sys.argv[1], int(sys.argv[2])))
s.send(b"who am I?")
print(s.recv(99).decode())
"""


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("80", Published(80, 80)),
        ("8080:80", Published(8080, 80)),
        ("53/udp", Published(53, 53, "udp")),
        ("127.0.0.1:80", Published(80, 80, "tcp", ip_address("127.0.0.1"))),
        ("127.0.0.1:8080:80/udp", Published(8080, 80, "udp", ip_address("127.0.0.1"))),
        ("[::1]:8080:80/tcp", Published(8080, 80, "tcp", ip_address("::1"))),
    ],
)
def test_a_published_port_is_read(text: str, published: Published) -> None:
    assert parse(text) == published


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' in '' is not a port"),
        ("0", "'0' in '0' is not a port, 1 to 65535"),
        ("8080:70000", "'70000' in"),
        ("8080:", "is not a port"),
        ("80/sctp", "'sctp' in '80/sctp' is neither tcp nor udp"),
        ("localhost:8080:80", "'localhost' in .* is not an address"),
        ("[fe80:80:80]:80:80", "'fe80:80:80' in .* is not an address"),
    ],
)
def test_what_is_no_port_is_answered_with_what_is(text: str, message: str) -> None:
    with pytest.raises(CellbedError, match=f"--publish: .*{message}.* write '8080:80'"):
        parse(text)


needs_world = pytest.mark.skipif(missing() is not None, reason=missing() or "")


def serving(
    world: World, *options: str, user: int = 0, source: str = SERVER, arguments: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """A shell in which a server is up."""
    process = world.start([*cellbed("shell"), *options, "--", *python(source, *arguments)], user=user)
    assert next_line(process) == "ready"
    return process


FROM_EVERYWHERE = ((HOST, True), (HOST_IPV6, True), (HOST, False), ("127.0.0.1", False), ("::1", False))
"""Addresses of the host, and whether a client on the internet or one on the host asks."""


@needs_world
@pytest.mark.parametrize("user", [0, ORDINARY_USER], ids=["root", "ordinary"])
def test_a_server_inside_is_reached_through_the_link(world: World, user: int) -> None:
    serving(world, "--delay", "30 ms", "--publish", "8080:80", user=user)
    for address, internet in FROM_EVERYWHERE:
        done = world.run(python(EXCHANGE, address, "8080"), internet=internet)
        assert done.returncode == 0, (address, done.stderr)
        took, client, size = done.stdout.split()
        assert int(size) > 100_000
        # Never a packet early: connection and exchange each cross both directions.
        assert float(took) >= 0.060
        if user == 0 and internet:
            assert client in (f"::ffff:{INTERNET}", INTERNET_IPV6), "the server sees who asks"


@needs_world
def test_datagrams_reach_a_server_inside_and_answers_come_from_where_was_asked(world: World) -> None:
    serving(world, "--delay", "1", "--publish", "5300:53/udp", source=ECHO, arguments=("::", "53"))
    for address, internet in FROM_EVERYWHERE:
        done = world.run(python(ASK_UDP, address, "5300"), internet=internet)
        assert done.returncode == 0, (address, done.stderr)
        assert ip_address(done.stdout.strip())


@needs_world
def test_a_port_on_one_address_is_reached_at_that_alone_and_also_offline(world: World) -> None:
    serving(world, "--offline", "--publish", "127.0.0.1:8080:80", user=ORDINARY_USER)
    assert world.run(python(EXCHANGE, "127.0.0.1", "8080")).returncode == 0
    assert world.run(python(EXCHANGE, HOST, "8080"), internet=True).returncode != 0


@needs_world
def test_a_port_of_a_shell_around_a_shell_leads_to_where_the_inner_one_publishes(world: World) -> None:
    inner = [*cellbed("shell"), "--delay", "20", "--publish", "8000:80", "--", *python(SERVER)]
    process = world.start(
        [*cellbed("shell"), "--delay", "20", "--publish", "8080:8000", "--", *inner], user=ORDINARY_USER
    )
    assert next_line(process) == "ready"
    done = world.run(python(EXCHANGE, HOST, "8080"), internet=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) >= 0.080


@needs_world
def test_a_port_that_cannot_be_had_is_one_clear_error_and_nothing_is_left(world: World) -> None:
    world.serve(ECHO, "::", "8080")
    before = (world.rules(), world.devices())
    for user, published, message in (
        (0, "8080:80", "port 8080/tcp is taken on this machine: choose another, as in --publish 8081:80"),
        (
            ORDINARY_USER,
            "80",
            "port 80/tcp may not be opened by an ordinary user: choose one from 1024 on, as in --publish 8080:80",
        ),
        (0, "192.0.2.9:8081:80", "port 192.0.2.9:8081/tcp cannot be used: this machine does not have the address"),
    ):
        done = world.shell("--publish", published, "--", "echo", "started", user=user)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
        assert without_remark(done.stderr).count("\n") == 1
        assert world.records(user) == []
    assert (world.rules(), world.devices()) == before
