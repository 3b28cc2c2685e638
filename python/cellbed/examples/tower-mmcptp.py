"""A proxy like mmCPTP (Netalkar et al., NOMS 2023) on the node of a tower, by the state of the radio link.

It holds what servers send, and gives each endpoint so much every millisecond that the queue of its radio link has data
for the next 10 ms: rate * 10 ms - queue - released and not yet queued.

    python3 tower-mmcptp.py PORT
"""

import asyncio
import fcntl
import socket
import struct
import sys

from radio import Page

IP_TRANSPARENT, SIOCOUTQNSD = 19, 0x894B  # ip(7); linux/sockios.h: bytes of a socket that TCP has not sent
BUFFER = 4 << 20
page = Page()
downloads: dict[str, list["Download"]] = {}  # by endpoint


class Download:
    """The bytes from a server that wait for their release."""

    def __init__(self, near: socket.socket) -> None:
        self.near, self.waiting, self.ended = near, bytearray(), False
        self.room, self.done = asyncio.Event(), asyncio.Event()
        self.room.set()

    def unsent(self) -> int:
        return struct.unpack("i", fcntl.ioctl(self.near, SIOCOUTQNSD, b"\0" * 4))[0]

    def release(self, most: int) -> int:
        """Send at most so many bytes; return their number."""
        count = self.near.send(memoryview(self.waiting)[:most]) if self.waiting and most > 0 else 0
        del self.waiting[:count]
        if len(self.waiting) < BUFFER:
            self.room.set()
        if self.ended and not self.waiting:
            self.done.set()
        return count


async def release_all() -> None:
    while True:
        await asyncio.sleep(page.interval_ns / 1e9)
        links = page.read()
        for endpoint, its in downloads.items():
            if its and (link := links.of(endpoint)) is not None:
                down = link.downlink
                offered = BUFFER if down.offered_bytes is None else down.offered_bytes // down.sharers
                budget = offered - down.queued_bytes - sum(each.unsent() for each in its)
                its.append(its.pop(0))  # the next one first
                for number, each in enumerate(its):
                    try:
                        budget -= each.release(-(-budget // (len(its) - number)))
                    except BlockingIOError:
                        pass
                    except OSError:
                        each.done.set()


async def upload(loop: asyncio.AbstractEventLoop, near: socket.socket, far: socket.socket) -> None:
    while data := await loop.sock_recv(near, 1 << 18):
        await loop.sock_sendall(far, data)
    far.shutdown(socket.SHUT_WR)


async def download(loop: asyncio.AbstractEventLoop, far: socket.socket, own: Download) -> None:
    while data := await loop.sock_recv(far, 1 << 18):
        own.waiting += data
        if len(own.waiting) >= BUFFER:
            own.room.clear()
        await own.room.wait()
    own.ended = True
    own.release(0)
    await own.done.wait()
    own.near.shutdown(socket.SHUT_WR)


async def serve(loop: asyncio.AbstractEventLoop, near: socket.socket) -> None:
    near.setblocking(False)
    its = downloads.setdefault(near.getpeername()[0], [])
    its.append(own := Download(near))
    with near, transparent_socket() as far:
        try:
            far.bind(near.getpeername())
            await loop.sock_connect(far, near.getsockname())
            await asyncio.gather(upload(loop, near, far), download(loop, far, own))
        except OSError:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        finally:
            its.remove(own)


def transparent_socket() -> socket.socket:
    end = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    end.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end.setblocking(False)
    return end


async def main() -> None:
    loop, served = asyncio.get_running_loop(), set()
    served.add(loop.create_task(release_all()))
    with transparent_socket() as listener:
        listener.bind(("", int(sys.argv[1])))
        listener.listen(1024)
        while True:
            near, _ = await loop.sock_accept(listener)
            served.add(task := loop.create_task(serve(loop, near)))
            task.add_done_callback(served.discard)


asyncio.run(main())
