"""Programs that tests start on nodes."""

BURNER = """
import os, time
if os.fork():
    os.wait()
else:
    while time.process_time() < 0.3:
        pass
"""
SERVER = """
import socket, sys, threading
def serve(connection):
    with connection:
        while connection.recv(65536):
            connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
with socket.create_server(("", int(sys.argv[1])), backlog=64) as server:
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
"""Answers each request over HTTP; its argument is a port."""
