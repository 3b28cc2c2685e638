"""The load generator of an HTTP server: one endpoint that sends requests over a few connections.

Run as ``python -m cellbed_node.http.load --config FILE.json``; :class:`Settings` describes the file.
"""

import random
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cellbed_node import generator, inputs, lifecycle, machine
from cellbed_node.generator import Generator
from cellbed_node.http.connection import VERSIONS, Connection, Exchange, Message, Streams
from cellbed_node.http.journeys import Journey, User
from cellbed_node.http.messages import PREFIX, SPLITTERS
from cellbed_node.ledger import Ledger, Request
from cellbed_node.lifecycle import WorkloadError
from cellbed_node.templates import fill
from cellbed_node.tls import Clear, Tls, client_context

_PATIENCE_NS = generator.SECOND
"""Time limit for opening a connection, if there are other servers."""
_AVOIDED_NS = generator.SECOND
"""Time without requests to a server after a failed connection, if there are others."""
_IN_TARGETS = "!$%&'()*+,/:;=?@[]~"
"""Characters that are not escaped in a target with values from replies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(generator.Settings):
    """The configuration of an HTTP load.

    hosts: names or addresses of the servers; balance: how a server is chosen for each request, if there are several;
    authority: as in the URL. connections: maximum number to each server. body: text; body_file: file with the body
    instead; body_size: number of random bytes instead; body_hex: bytes instead. grpc: number of gRPC messages with this
    content per request, 0 for other requests. authorities: file with the trusted certificates over TLS, ``None``
    without TLS. stream: kind of streamed replies, ``None`` for others; messages: file for their messages. journeys:
    tables of :class:`Journey` instead of equal requests; values: by name in braces. traced: the application, if
    requests have OpenTelemetry identifiers.
    """

    version: str
    hosts: Sequence[str]
    port: int
    authority: str
    target: str
    method: str
    headers: dict[str, str]
    connections: int
    balance: str = "round-robin"
    body: str = ""
    body_file: str | None = None
    body_size: int = 0
    body_hex: str = ""
    grpc: int = 0
    authorities: str | None = None
    stream: str | None = None
    messages: str = ""
    journeys: Sequence[dict[str, Any]] = ()
    values: dict[str, str] = field(default_factory=dict)
    traced: str = ""


class Pool:
    """The connections to one server. A request waits for a free connection, and opens one below the maximum.

    connect: begins to open a connection. kind: kind of the connections; most: maximum number. on_reply: called with
    each request of a journey that has a reply.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        kind: type[Connection],
        most: int,
        ledger: Ledger,
        on_reply: Callable[[Exchange], object],
    ) -> None:
        self._connect, self._kind, self._most, self._ledger, self._on_reply = connect, kind, most, ledger, on_reply
        self.connections: list[Connection] = []
        self._waiting: deque[Exchange] = deque()
        self.last_trouble = ""
        self.failed_ns: int | None = None
        """Time of the last failed attempt."""

    @property
    def outstanding(self) -> int:
        """The number of requests without a reply."""
        return len(self._waiting) + sum(len(each.under_way()) for each in self.connections)

    def take(self, request: Exchange) -> None:
        """Send a request as soon as a connection is free."""
        self._waiting.append(request)
        self.dispatch()

    @property
    def opening_since_ns(self) -> int | None:
        """The time at which the first of the opening connections began to open."""
        return min((each.begun_ns for each in self.connections if not each.open), default=None)

    def give_up(self, since_ns: int) -> list[Exchange]:
        """Close connections that began to open by `since_ns` and still do; return the waiting requests, for other
        servers."""
        late = [each for each in self.connections if not each.open and each.begun_ns <= since_ns]
        if not late:
            return []
        for each in late:
            each.close()
        self.last_trouble, self.failed_ns = "cannot connect: no answer", machine.now_ns()
        found = list(self._waiting)
        self._waiting.clear()
        return found

    def dispatch(self) -> None:
        """Send waiting requests over connections with room, and open more connections if none is idle."""
        closed = []
        for each in self.connections:
            while each.returned:
                self._waiting.appendleft(each.returned.pop())
            while each.replied:
                self._on_reply(each.replied.pop(0))
            if each.closed:
                closed.append(each)
        for each in closed:
            self.connections.remove(each)
            if each.trouble:
                self._fail(each.trouble)
        while self._waiting:
            if self._ledger.find(self._waiting[0].request) is None:  # given up
                self._waiting.popleft()
            elif free := [each for each in self.connections if each.room]:
                # The connection with most room, of these the last used: the others can close.
                max(reversed(free), key=lambda each: (each.room, each.used_ns)).take(self._waiting.popleft())
            else:
                break
        for each in self.connections:
            each.fresh = False
        wanted = len(self._waiting)
        if not wanted and not self._kind.spare:
            return
        opening = sum(not each.open for each in self.connections)
        if self._kind.spare and self.connections and not any(each.idle for each in self.connections):
            wanted = max(wanted, self._kind.spare)
        while opening < wanted and len(self.connections) < self._most:
            try:
                self.connections.append(self._connect())
                opening += 1
            except OSError as error:
                self._fail(f"cannot connect: {error.strerror}")
                wanted = len(self._waiting)

    def _fail(self, reason: str) -> None:
        """Note why a connection could not be opened; the longest-waiting request is lost."""
        self.last_trouble, self.failed_ns = reason, machine.now_ns()
        if self._waiting:
            self._ledger.lose(self._waiting.popleft().request, reason)


class HttpLoad(Generator):
    """One endpoint with connections to one server, or to several with a choice for each request."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._settings = settings
        self._kind = VERSIONS[settings.version]
        self._message = _message(settings)
        self._addresses = [(host, settings.port) for host in settings.hosts]
        self._pools = [self._pool(number) for number in range(len(settings.hosts))]
        self._next = 0
        self._context: ssl.SSLContext | None = None
        self._journeys = [Journey.of(table) for table in settings.journeys]
        self._arrived = 0
        self._streams: Streams | None = None
        if settings.stream is not None:
            self._messages = lifecycle.open_record(Path(settings.messages))
            self._streams = Streams(settings.endpoint, SPLITTERS[settings.stream], self._messages.write)

    def _pool(self, number: int) -> Pool:
        return Pool(lambda: self.connect(number), self._kind, self._settings.connections, self.ledger, self._continue)

    def prepare(self) -> None:
        if self._settings.authorities is not None:
            try:
                self._context = client_context(self._settings.authorities, [self._kind.protocol])
            except OSError as error:
                raise WorkloadError(f"{self._settings.authorities}: no certificates: {error}") from error
        for number, (host, port) in enumerate(self._addresses):
            try:
                self._addresses[number] = machine.resolve(host, port), port
            except OSError as error:
                raise WorkloadError(f"{host}: no such host: {error.strerror}") from error

    def create(self, number: int, intended_ns: int) -> Exchange:
        if not self._journeys:
            body = self._message.body
            return Exchange(number, self._endpoint, intended_ns, bytes_up=len(body), message=self._message)
        settings = self._settings
        user = User(self._journeys, self._arrived, self._endpoint, settings.seed, settings.values)
        self._arrived += 1
        return self._step(number, intended_ns, user)

    def _step(self, number: int, intended_ns: int, user: User) -> Exchange:
        step, common = user.step, self._message
        target = quote(fill(step.target, user.values), safe=_IN_TARGETS)
        headers = {name: fill(value, user.values) for name, value in step.headers.items()}
        given = {name.lower() for name in headers}
        kept = [(name, value) for name, value in common.headers if name.lower() not in given]
        body = fill(step.body, user.values).encode()
        message = replace(common, method=step.method, target=target, headers=(*kept, *headers.items()), body=body)
        return Exchange(
            number,
            self._endpoint,
            intended_ns,
            bytes_up=len(body),
            step=step.name,
            journey=user.number,
            message=message,
            user=user,
        )

    def _continue(self, request: Exchange) -> None:
        """Continue the journey of a user after a reply, unless the reply was an error or late."""
        user = request.user
        if user is not None and request.status == "ok" and (think_ns := user.next()) is not None:
            assert request.reply_ns is not None
            self.follow(self._step(self.take_number(), request.reply_ns + think_ns, user))

    def issue(self, request: Request) -> None:
        assert isinstance(request, Exchange)
        self.ledger.add(request)
        self._choose().take(request)

    def _choose(self) -> Pool:
        """Return the server of the next request: the next in turn, or the next with fewest outstanding requests.
        Servers that could not be reached are omitted for a while."""
        if len(self._pools) == 1:
            return self._pools[0]
        pools, since_ns = self._pools[self._next :] + self._pools[: self._next], machine.now_ns() - _AVOIDED_NS
        pools = [pool for pool in pools if pool.failed_ns is None or pool.failed_ns < since_ns] or pools
        least = self._settings.balance == "least-outstanding"
        found = min(pools, key=lambda pool: pool.outstanding) if least else pools[0]
        self._next = (self._pools.index(found) + 1) % len(self._pools)
        return found

    @property
    def _connections(self) -> list[Connection]:
        return [each for pool in self._pools for each in pool.connections]

    @property
    def readers(self) -> Sequence[Any]:
        return [each for pool in self._pools for each in pool.connections if each.readable]

    @property
    def writers(self) -> Sequence[Any]:
        return [each for pool in self._pools for each in pool.connections if each.wants_write]

    def drive(self, readable: Sequence[object], writable: Sequence[object]) -> None:
        for each in writable:
            if isinstance(each, Connection):
                each.write()
        for each in readable:
            if isinstance(each, Connection) and not each.closed:
                each.read()
        if len(self._pools) > 1:
            for pool in self._pools:
                for request in pool.give_up(machine.now_ns() - _PATIENCE_NS):
                    self._choose().take(request)
        for pool in self._pools:
            pool.dispatch()

    @property
    def wake_ns(self) -> int | None:
        if len(self._pools) == 1:
            return None
        begun = [pool.opening_since_ns for pool in self._pools]
        return min((each + _PATIENCE_NS for each in begun if each is not None), default=None)

    def close(self) -> None:
        for each in self._connections:
            each.close()
        if self._streams is not None:
            self._messages.close()

    @property
    def last_trouble(self) -> str:
        """The reason why a connection could not be opened, or an empty text."""
        return next((pool.last_trouble for pool in self._pools if pool.last_trouble), "")

    def connect(self, server: int = 0) -> Connection:
        """Return a new connection to the server of this number, which begins to open. Errors: ``OSError``."""
        return self._kind(self._addresses[server], self.layer(server), self.ledger, self._streams)

    def layer(self, server: int = 0) -> Clear:
        """Return TLS, or none, for a new connection to the server of this number."""
        return Tls(self._context, self._settings.hosts[server]) if self._context is not None else Clear()


def _message(settings: Settings) -> Message:
    if settings.body_file is not None:
        try:
            body = inputs.content(Path(settings.body_file), inputs.share_of_memory())
        except OSError as error:
            raise WorkloadError(f"{settings.body_file}: cannot be read: {error.strerror}") from error
    elif settings.body_size:
        body = random.Random(f"{settings.seed}/body").randbytes(settings.body_size)
    else:
        body = bytes.fromhex(settings.body_hex) or settings.body.encode()
    headers = {"User-Agent": "cellbed", "Accept": "*/*"}
    if settings.grpc:
        headers = {"User-Agent": "cellbed", "Content-Type": "application/grpc", "TE": "trailers"}
        body = (b"\0" + len(body).to_bytes(PREFIX - 1) + body) * settings.grpc
    given = {name.lower() for name in settings.headers}
    kept = {name: value for name, value in headers.items() if name.lower() not in given}
    return Message(
        "http" if settings.authorities is None else "https",
        settings.method,
        settings.authority,
        settings.target,
        (*kept.items(), *settings.headers.items()),
        body,
        grpc=bool(settings.grpc),
        traced=settings.traced,
    )


main = generator.program(HttpLoad, Settings)


if __name__ == "__main__":
    lifecycle.run(main)
