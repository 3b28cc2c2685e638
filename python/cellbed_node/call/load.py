"""The load generator of the kind: one end of a call, whose browser sends frames and reads the other end's frames.

Run as ``python -m cellbed_node.call.load --config FILE.json``; :class:`Settings` describes the file. The page
(``page.html``) paints and reads frames alone; this program sets up the call, requests the page's stamps, and reports
the shown frames to the other end.
"""

import contextlib
import json
import select
import shutil
import socket
from collections import deque
from collections.abc import Generator as Steps
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed_node import generator, lifecycle, machine
from cellbed_node.browsing.browser import Browser, Call, Flow, open_page
from cellbed_node.call import readings
from cellbed_node.generator import SECOND, Generator
from cellbed_node.ledger import Request
from cellbed_node.lifecycle import WorkloadError
from cellbed_node.temporary import remove_tree

PAGE = Path(__file__).with_name("page.html")
FLAGS = ("--autoplay-policy=no-user-gesture-required", "--window-size=640,360", "--host-resolver-rules=MAP * ~NOTFOUND")
_LEAD_NS = 5 * SECOND
"""Time between the set-up and the start of a late call: a browser forgets its estimates of an idle link."""
_POLL_NS = SECOND // 4
"""Interval between requests for the page's stamps."""
_LARGEST = 1 << 17
"""Maximum bytes of a message between the ends."""
_SEEN = 100
"""Maximum frames in a message."""
_BROKEN = {"disconnected": "was interrupted", "failed": "had failed"}
"""States of a connection, in words."""
_MOST_ENCODED = 10_000
"""Maximum encoded frames kept until shown; lost frames are never requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(generator.Settings):
    """The configuration of an end. program: the browser; folder: new folder for its files; socket, peer_socket: sockets
    of this end and of the other end; peer: the other end's node; peer_phase: `phase` of the other end's frames; offers:
    whether this end begins the call; measures: file for this program's measures; page: settings of the page, with the
    relay. start_ns: start of the load, since the start of the workload.
    """

    program: str
    folder: str
    socket: str
    peer_socket: str
    peer: str
    peer_phase: float
    offers: bool
    measures: str
    page: dict[str, Any]
    start_ns: int


@dataclass(slots=True)
class Frame(Request):
    """A frame. sent_ns: when it left the encoder; reply_ns: when it was shown. painted_ns: when it was painted;
    received_ns: arrival of the last packet at the receiving browser; buffered_ns, decoded_ns: durations of waiting
    there and of decoding. height: as shown, pixels; receiver: node of the other end."""

    painted_ns: int | None = None
    received_ns: int | None = None
    buffered_ns: int | None = None
    decoded_ns: int | None = None
    height: int | None = None
    receiver: str | None = None


class Peer:
    """The other end, by datagrams of a Unix socket: none of these packets are on the testbed's network.

    gone: whether the other end's program has ended.
    """

    def __init__(self, own: str, other: str) -> None:
        self._other = other
        self._waiting: deque[bytes] = deque()
        self.gone = self._met = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(own)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, **message: Any) -> None:
        """Send a message as soon as the other end accepts it."""
        self._waiting.append(json.dumps(message).encode())
        self.flush()

    def flush(self) -> None:
        """Send waiting messages."""
        while self._waiting and not self.gone:
            try:
                self._socket.sendto(self._waiting[0], self._other)
            except (FileNotFoundError, ConnectionRefusedError):
                self.gone = self._met  # before the first contact: not started yet
                return
            except BlockingIOError:
                return
            self._met = True
            self._waiting.popleft()

    def read(self) -> list[dict[str, Any]]:
        """Return the received messages."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(json.loads(self._socket.recv(_LARGEST)))
        return found

    def close(self) -> None:
        path = self._socket.getsockname()
        self._socket.close()
        Path(path).unlink(missing_ok=True)


class CallLoad(Generator):
    """One end of a call."""

    writers = ()
    patience_ns = 29 * SECOND
    """Time limit for starting the browser, and then for setting up a call: each may take 30 s."""
    trouble = "the browser did not start in time"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        assert settings.rate is not None
        self._settings, self._interval_ns = settings, SECOND / settings.rate
        self._session = ""
        self._navigation_ns = 0.0
        self._peer = Peer(settings.socket, settings.peer_socket)
        self._state, self._called, self._connected = "new", False, False
        self._late = settings.start_ns > _LEAD_NS
        self._camera: dict[str, Any] = {}
        self._other_over = self._over = self._polling = False
        self._poll_ns = 0
        self._frames: dict[int, Frame] = {}  # open frames by number
        self._painted: dict[int, int] = {}
        self._encoded: dict[int, tuple[int, int]] = {}
        self._reported: list[list[Any]] = []
        self._count = self._painted_count = self._unread = 0
        self._samples: list[dict[str, Any]] = []
        self._delays: list[tuple[float, float]] = []
        folder = Path(settings.folder)
        remove_tree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._page = Path(shutil.copy(PAGE, folder))  # the browser's user may have no access to the installed file
        self._browser = Browser(settings.program, FLAGS, folder, self._on_event)

    def run(self) -> None:
        # The page sends nothing. On a very busy machine the load continues while the page opens.
        self._browser.start(self._open())
        until = machine.now_ns() + self.patience_ns
        while not self._navigation_ns and (left_ns := until - machine.now_ns()) > 0:
            select.select([self._browser], [], [], left_ns / SECOND)
            self._browser.read()
        super().run()

    def _set_up(self, flow: Flow) -> None:
        self._called = True
        self._browser.start(self._try(flow))

    def _try(self, flow: Flow) -> Flow:
        """Take a step of the set-up. Errors: :class:`WorkloadError` before the run begins."""
        try:
            yield from flow
        except WorkloadError as error:
            if not self._t0_ns:
                raise
            self.trouble = str(error)

    @property
    def ready(self) -> bool:
        return self._connected or (self._late and self._navigation_ns > 0)

    def _open(self) -> Flow:
        page = yield from open_page(("Page", "Performance"))
        self._session = page.session
        yield "Page.navigate", page.session, {"url": self._page.as_uri()}

    def _on_event(self, method: str, session: str | None, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired" and session == self._session and not self._navigation_ns:
            self._browser.start(self._read_clock())
        elif method in ("Inspector.targetCrashed", "Target.detachedFromTarget"):
            raise WorkloadError("the page crashed: its node may have too little memory, write 1 GiB or more")

    def _ask(self, function: str, *arguments: Any) -> Steps[Call, dict[str, Any], Any]:
        """Call a function of the page and return its result. Errors: :class:`WorkloadError` with the page's error."""
        text = f"{function}({', '.join(map(json.dumps, arguments))})"
        asked = {"expression": text, "awaitPromise": True, "returnByValue": True}
        answer = yield "Runtime.evaluate", self._session, asked
        if (failure := answer.get("exceptionDetails")) is not None:
            reason = str(failure.get("exception", {}).get("description") or failure.get("text")).splitlines()[0]
            raise WorkloadError(f"the call failed: {reason}")
        return answer["result"].get("value")

    def _read_clock(self) -> Flow:
        metrics = (yield "Performance.getMetrics", self._session, {})["metrics"]
        # By CLOCK_MONOTONIC; the origin of the page's times.
        self._navigation_ns = {each["name"]: each["value"] for each in metrics}["NavigationStart"] * SECOND
        self.trouble = f"the browser of {self._settings.peer} did not call in time"

    def _call(self) -> Flow:
        if not self._settings.offers:
            return
        self.trouble = f"the relay at {self._settings.page['host']} gave no address in time"
        offer = yield from self._ask("offer", self._settings.page)
        self.trouble = f"the browser of {self._settings.peer} did not answer in time"
        self._peer.send(offer=offer)

    def _answer(self, offer: str) -> Flow:
        self.trouble = f"the relay at {self._settings.page['host']} gave no address in time"
        answer = yield from self._ask("answer", self._settings.page, offer)
        self._peer.send(answer=answer)
        yield from self._connect()

    def _accept(self, answer: str) -> Flow:
        yield from self._ask("accept", answer)
        yield from self._connect()

    def _connect(self) -> Flow:
        self.trouble = "the two browsers did not reach each other through the relay in time"
        yield from self._ask("connected")
        self._connected = True
        yield from self._begin()

    def _receive(self) -> None:
        for message in self._peer.read():
            if "offer" in message:
                self._set_up(self._answer(message["offer"]))
            elif "answer" in message:
                self._set_up(self._accept(message["answer"]))
            elif "seen" in message:
                self._reported += message["seen"]
            elif "over" in message:
                self._other_over = True

    def start(self, t0_ns: int, end_ns: int, drain_ns: int) -> None:
        super().start(t0_ns, end_ns, drain_ns)
        self._count = len(self._due)
        self._camera = {
            "begin": self._page_ms(t0_ns + (self._due[0] if self._due else 0)),
            "interval": self._interval_ns / 1e6,
            "count": self._count,
        }
        self._browser.start(self._begin())

    def _begin(self) -> Flow:
        if self._connected and self._camera:
            yield from self._ask("begin", self._camera)

    def _page_ms(self, at_ns: int) -> float:
        return (at_ns - self._navigation_ns) / 1e6

    def _stamp(self, at_ms: float) -> int:
        return round(self._navigation_ns + at_ms * 1e6)

    def create(self, number: int, intended_ns: int) -> Frame:
        port = self._settings.page["port"]
        return Frame(number, self._endpoint, intended_ns, remote_port=port, receiver=self._settings.peer)

    def issue(self, request: Request) -> None:
        assert isinstance(request, Frame)
        self.ledger.add(request)  # the page paints it by its own clock
        self._frames[request.request] = request

    def turn(self) -> int | None:
        wake = super().turn()
        if wake is not None:
            return wake
        # The other end may still wait for the report of its last frames.
        if not self._over:
            self._over = True
            self._peer.send(over=True)
        now, stop_ns = machine.now_ns(), self._end_ns + self._drain_ns
        return None if self._other_over or self._peer.gone or now >= stop_ns else min(stop_ns, now + _POLL_NS)

    @property
    def readers(self) -> Sequence[Any]:
        return [self._browser, *([self._peer] if self._navigation_ns else [])]

    @property
    def wake_ns(self) -> int | None:
        return self._poll_ns

    def drive(self, readable: Sequence[object], writable: Sequence[object]) -> None:
        if self._browser in readable:
            self._browser.read()
        if self._peer in readable:
            self._receive()
        if (now := machine.now_ns()) >= self._poll_ns:
            self._poll_ns = now + _POLL_NS
            self._peer.flush()
            is_due = not self._late or 0 < self._t0_ns <= now + _LEAD_NS
            if self._navigation_ns and is_due and not self._called:
                self._set_up(self._call())
            if self._connected and self._t0_ns and not self._polling:
                self._polling = True
                self._browser.start(self._poll())

    def _poll(self) -> Flow:
        shown, self._reported = self._reported, []  # first: the page's stamps of these frames come later
        taken = yield from self._ask("take")
        self._polling = False
        self._state = taken["state"]
        self._samples += taken["samples"]
        self._unread += taken["unread"]
        self._painted_count += len(taken["painted"])
        self._painted |= {number: self._stamp(at) for number, at in taken["painted"]}
        self._encoded |= {stamp: (self._stamp(at), size) for stamp, at, size in taken["encoded"]}
        while len(self._encoded) > _MOST_ENCODED:
            del self._encoded[next(iter(self._encoded))]
        for row in shown:
            self._show(*row)
        self._report(taken["seen"])

    def _report(self, seen: list[list[Any]]) -> None:
        """Report to the other end its shown frames."""
        rows = []
        for number, received, decoding, at, stamp, height in seen:
            shown_ns = self._stamp(at)
            received_ns = None if received is None else self._stamp(received)
            rows.append([number, received_ns, round(decoding * 1e6), shown_ns, stamp, height])
            intended = self._t0_ns + (number + self._settings.peer_phase) * self._interval_ns
            self._delays.append(((shown_ns - self._t0_ns) / SECOND, (shown_ns - intended) / 1e6))
        for begin in range(0, len(rows), _SEEN):
            self._peer.send(seen=rows[begin : begin + _SEEN])

    def _show(
        self, number: int, received_ns: int | None, decoded_ns: int, shown_ns: int, stamp: int | None, height: int
    ) -> None:
        """Record that the other end showed a frame of this end; all unshown frames before are lost."""
        if number >= self._number:  # painted by the page, but not issued here yet
            self._reported.append([number, received_ns, decoded_ns, shown_ns, stamp, height])
            return
        for earlier in [each for each in self._frames if each < number]:
            self._lose(earlier, "not shown: the encoder skipped it, it was lost, or the next one was there before")
        frame = self._frames.pop(number, None)
        if frame is None:
            return
        frame.painted_ns, frame.received_ns, frame.height = self._painted.pop(number, None), received_ns, height
        if received_ns is not None:
            frame.decoded_ns, frame.buffered_ns = decoded_ns, shown_ns - received_ns - decoded_ns
        if stamp is not None and (encoded := self._encoded.pop(stamp, None)) is not None:
            frame.sent_ns, frame.bytes_up = encoded
        self.ledger.reply(number, shown_ns, error=None, start=0, end=0, payload=0)

    def _lose(self, number: int, reason: str) -> None:
        del self._frames[number]
        painted = self._painted.pop(number, None)
        self.ledger.lose(number, reason if painted is not None else "not painted: the endpoint was too busy")

    def close(self) -> None:
        reason = "not shown when the run ended" if self._connected else self.trouble
        if self._state not in ("new", "connected"):
            reason = f"the connection through the relay {_BROKEN.get(self._state, 'was not open')}"
        for number in list(self._frames):
            self._lose(number, reason)
        # Closing the browser may take longer than the time limit of a program.
        self.ledger.close(machine.now_ns())
        if self._t0_ns:
            found = readings.measures(self._samples, self._delays, self._page_ms(self._t0_ns))
            if self._connected:
                counts = (self._count, self._painted_count, self._unread)
                found |= readings.strains(self._samples, self._interval_ns / 1e6, *counts)
            Path(self._settings.measures).write_text(json.dumps(found), encoding="utf-8")
        self._peer.close()
        self._browser.close()
        remove_tree(Path(self._settings.folder), ignore_errors=True)


main = generator.program(CallLoad, Settings)


if __name__ == "__main__":
    lifecycle.run(main)
