"""The messages of streamed replies, and the ends of messages."""

import re

_LONGEST_EVENT = 1 << 20
"""Maximum bytes of an event that are examined."""
_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_BLANK = 4
PREFIX = 5
"""Bytes before a gRPC message."""
_DATA = re.compile(rb"^data", re.MULTILINE)


class Chunks:
    """Chunks of HTTP/1.1 (RFC 9112, §7.1), or DATA frames of HTTP/2: units that a server wrote together.

    size: bytes since the last message.
    """

    def __init__(self) -> None:
        self.size = 0

    def feed(self, data: bytes, *, complete: bool) -> list[int]:
        """Return the sizes of the messages that the next bytes of a body complete. complete: whether these bytes end a
        chunk or frame."""
        self.size += len(data)
        return self.rest() if complete else []

    def rest(self) -> list[int]:
        """Return the size of the body after its last message, if not empty."""
        found, self.size = [self.size] * bool(self.size), 0
        return found


class Events(Chunks):
    """Server-sent events (HTML standard, §9.2.6): blocks with data, each ended by a blank line."""

    def __init__(self) -> None:
        super().__init__()
        self._event = bytearray()

    def feed(self, data: bytes, *, complete: bool) -> list[int]:
        since = max(0, len(self._event) - _LONGEST_BLANK)
        self._event += data
        self.size += len(data)
        found = []
        while end := _BLANK_LINE.search(self._event, since):
            rest = len(self._event) - end.end()
            if _DATA.search(self._event, 0, end.end()):
                found.append(self.size - rest)
            self.size, since = rest, 0
            del self._event[: end.end()]
        if len(self._event) > _LONGEST_EVENT:
            self._event[:] = b"data" + self._event[-_LONGEST_BLANK:]
        return found

    def rest(self) -> list[int]:
        return []  # an event without a final blank line is none


class LengthPrefixed(Chunks):
    """Messages of gRPC: one byte of flags, four bytes of length, then the content."""

    def __init__(self) -> None:
        super().__init__()
        self._prefix = bytearray()
        self._left = 0

    def feed(self, data: bytes, *, complete: bool) -> list[int]:
        found = []
        while data:
            if len(self._prefix) < PREFIX:
                taken = min(len(data), PREFIX - len(self._prefix))
                self._prefix += data[:taken]
                self._left = int.from_bytes(self._prefix[1:])
            else:
                taken = min(len(data), self._left)
                self._left -= taken
            self.size += taken
            data = data[taken:]
            if len(self._prefix) == PREFIX and not self._left:
                found.append(self.size)
                self.size = 0
                self._prefix.clear()
        return found


SPLITTERS = {"chunks": Chunks, "sse": Events, "grpc": LengthPrefixed}
