"""Programs of users that measure themselves: an encoder, a federated-learning client, and a game with its server.

``python3 own_programs.py encode | learn HOST PORT | play HOST PORT | serve PORT``
"""

import csv
import json
import selectors
import socket
import sys
import time
from pathlib import Path

FRAMES, ROUNDS, MOVES = 30, 4, 25
UPDATE = 20_000
"""Bytes that a learner sends each round, and receives."""


def encode():
    """Report progress as ffmpeg does: one line that is written again and again."""
    for frame in range(1, FRAMES + 1):
        print(f"frame={frame:5d} fps={24 + frame % 3:.1f} bitrate={800 + frame}kbits/s", end="\r", flush=True)
    print()


def learn(host, port):
    """Send updates of a model, and write a row for each round."""
    start = time.monotonic()
    with socket.create_connection((host, int(port))) as server, Path("rounds.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["time_s", "loss", "round [s]", "note"])
        for number in range(ROUNDS):
            began = time.monotonic()
            server.sendall(bytes(UPDATE))
            left = UPDATE
            while left:
                left -= len(server.recv(left))
            now = time.monotonic()
            rows.writerow([now - start, 1 / (number + 1), now - began, "first" if number == 0 else ""])


def play(host, port):
    """Send moves in datagrams, and write the time until each answer."""
    start, times, trips = time.monotonic(), [], []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as game:
        game.connect((host, int(port)))
        game.settimeout(200)
        for number in range(MOVES):
            sent = time.monotonic()
            game.send(b"move %3d" % number)
            game.recv(100)
            times.append(sent - start)
            trips.append((time.monotonic() - sent) * 1e3)
            time.sleep(0.01)
    found = {"trip": {"values": trips, "unit": "ms", "times_s": times}, "moves": MOVES, "map": "de_dust"}
    with Path("game.json").open("w") as file:
        json.dump(found, file)


def serve(port):
    """Send back what comes, over TCP and UDP."""
    game = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    game.bind(("", int(port)))
    learners = socket.create_server(("", int(port)))
    chosen = selectors.DefaultSelector()
    for each in (game, learners):
        chosen.register(each, selectors.EVENT_READ)
    while True:
        for key, _ in chosen.select():
            if key.fileobj is game:
                game.sendto(*game.recvfrom(100))
            elif key.fileobj is learners:
                chosen.register(learners.accept()[0], selectors.EVENT_READ)
            elif content := key.fileobj.recv(1 << 16):
                key.fileobj.sendall(content)
            else:
                chosen.unregister(key.fileobj)
                key.fileobj.close()


if __name__ == "__main__":
    {"encode": encode, "learn": learn, "play": play, "serve": serve}[sys.argv[1]](*sys.argv[2:])
