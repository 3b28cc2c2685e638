"""TLS of load generators, over connections that count bytes: messages are located in the TCP stream.

Messages are located by whole records: from the start of the first record with the message to the end of the last.
"""

import ssl
from collections import deque
from collections.abc import Sequence

_RECORD_HEADER = 5  # bytes (RFC 8446, §5.1)
_RECORD_TYPES = range(20, 24)
_READ = 1 << 16


class Clear:
    """A connection without TLS, and the base class of connections with TLS.

    ready: whether messages can pass. hello: length of the client's first flight in the uplink's stream, ``None``
    without TLS; flight: bytes of the downlink's stream until the handshake was complete. protocol: chosen by the server
    (ALPN). over: whether the server has ended TLS.
    """

    ready = True
    hello: int | None = None
    flight: int | None = None
    protocol: str | None = None
    over = False

    def begin(self) -> None:
        """Begin the handshake."""

    def encode(self, data: bytes) -> bytes:
        """Return the bytes to send for bytes of messages."""
        return data

    def decode(self, data: bytes) -> bytes:
        """Return the bytes of messages that `data` completes. Errors: ``ssl.SSLError``."""
        return data

    def answer(self) -> bytes:
        """Return the bytes to send besides messages."""
        return b""

    def start(self, offset: int) -> int:
        """Return the start, in the downlink's stream, of the byte at an offset of the messages.

        The byte has been received. Offsets of calls to `start` and :meth:`end` do not decrease."""
        return offset

    def end(self, offset: int) -> int:
        """Return the end, in the downlink's stream, of the message bytes before an offset."""
        return offset


class Records(Clear):
    """A connection whose messages are in TLS records. taken: bytes of the downlink's stream in whole records."""

    def __init__(self) -> None:
        self.ready = False
        self.taken = 0
        self._rest = bytearray()
        self._decoded = 0
        self._marks: deque[tuple[int, int, int]] = deque()  # records: end in the messages, start and end in the stream

    def take(self, record: bytes) -> bytes:
        """Return the message bytes of a record. Errors: ``ssl.SSLError``."""
        raise NotImplementedError

    def decode(self, data: bytes) -> bytes:
        self._rest += data
        found = bytearray()
        while len(self._rest) >= _RECORD_HEADER:
            if self._rest[0] not in _RECORD_TYPES:
                raise ssl.SSLError(0, "no TLS at this port")
            size = _RECORD_HEADER + int.from_bytes(self._rest[3:_RECORD_HEADER])
            if len(self._rest) < size:
                break
            record = bytes(self._rest[:size])
            del self._rest[:size]
            begin, self.taken = self.taken, self.taken + size
            if content := self.take(record):
                found += content
                self._decoded += len(content)
                self._marks.append((self._decoded, begin, self.taken))
        return bytes(found)

    def start(self, offset: int) -> int:
        while self._marks[0][0] <= offset:
            self._marks.popleft()
        return self._marks[0][1]

    def end(self, offset: int) -> int:
        while self._marks[0][0] < offset:
            self._marks.popleft()
        return self._marks[0][2]


class Tls(Records):
    """TLS 1.3 of one connection to `host`, with the certificates and protocols of `context`."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        super().__init__()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=host)

    def begin(self) -> None:
        self._shake_hands()
        self.hello = self._out.pending

    def encode(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self.answer()

    def answer(self) -> bytes:
        return self._out.read()

    def take(self, record: bytes) -> bytes:
        self._in.write(record)
        if self.ready:
            return self._read()
        self._shake_hands()
        return b""

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.ready, self.flight, self.protocol = True, self.taken, self._tls.selected_alpn_protocol()

    def _read(self) -> bytes:
        found = b""
        try:
            while content := self._tls.read(_READ):
                found += content
        except ssl.SSLWantReadError:
            return found
        except ssl.SSLZeroReturnError:
            pass
        self.over = True
        return found


def client_context(authority: str, protocols: Sequence[str]) -> ssl.SSLContext:
    """Return the TLS settings of clients. authority: file with the trusted certificates. Errors: ``OSError``."""
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(list(protocols))
    return context


def reason(error: ssl.SSLError) -> str:
    """Return the reason of a failure as text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the server's certificate is refused: {error.verify_message}"
    words = getattr(error, "reason", None)
    if words == "TLSV1_ALERT_PROTOCOL_VERSION":
        return "TLS: the server does not speak TLS 1.3"
    return f"TLS: {words.lower().replace('_', ' ') if words else error.args[-1]}"
