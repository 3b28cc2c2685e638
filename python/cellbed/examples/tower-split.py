"""A split-TCP proxy on the node of a tower: it ends each connection of an endpoint, and opens one to the server.

python3 tower-split.py PORT
"""

import asyncio
import socket
import sys

IP_TRANSPARENT = 19  # of ip(7): a socket with an address of another node


def transparent_socket() -> socket.socket:
    end = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    end.setsockopt(socket.SOL_IP, IP_TRANSPARENT, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end.setblocking(False)
    return end


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 18):
        target.write(data)
        await target.drain()
    target.write_eof()


async def serve(endpoint_in: asyncio.StreamReader, endpoint_out: asyncio.StreamWriter) -> None:
    endpoint, server = endpoint_out.get_extra_info("peername"), endpoint_out.get_extra_info("sockname")
    far = transparent_socket()
    try:
        far.bind(endpoint)  # the server sees the endpoint's address and port
        await asyncio.get_running_loop().sock_connect(far, server)
        server_in, server_out = await asyncio.open_connection(sock=far)
        await asyncio.gather(copy(endpoint_in, server_out), copy(server_in, endpoint_out))
        endpoint_out.close()
    except OSError:
        endpoint_out.transport.abort()  # a reset for the endpoint
    finally:
        far.close()


async def main() -> None:
    listener = transparent_socket()
    listener.bind(("", int(sys.argv[1])))
    async with await asyncio.start_server(serve, sock=listener, backlog=1024) as server:
        await server.serve_forever()


asyncio.run(main())
