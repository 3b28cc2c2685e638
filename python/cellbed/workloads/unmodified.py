"""An unmodified server program, such as Mosquitto or nginx, as a process of a workload."""

import os
import select
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cellbed import prctl
from cellbed.workloads import lifecycle
from cellbed.workloads.lifecycle import WorkloadError, announce

_START_PATIENCE_S = 30.0


def run_until_stopped(name: str, command: Sequence[str], ports: Sequence[tuple[str, int]], log: Path) -> None:
    """Start `command`, announce readiness once it serves, and end it with standard input.

    ports: addresses and TCP ports at which it serves. log: file that its output is appended to.
    Raises WorkloadError where a port is taken, and for a program that does not start or ends unexpectedly.
    """
    for address, port in ports:
        _check_free(name, address, port)
    try:
        with log.open("ab") as output:
            program = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=prctl.die_with_parent
            )
    except OSError as error:
        raise WorkloadError(f"cannot start {name}: {error}") from error
    try:
        _await_ports(name, program, ports, log)
        announce("ready")
        _supervise(name, program, log)
    finally:
        # It keeps nothing, so there is nothing to wait for.
        program.kill()
        program.wait()


def _check_free(name: str, address: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise WorkloadError(f"{name} cannot listen on {address} port {port}: {error.strerror}") from error


def _await_ports(name: str, program: "subprocess.Popen[bytes]", ports: Sequence[tuple[str, int]], log: Path) -> None:
    deadline = time.monotonic() + _START_PATIENCE_S
    for address, port in ports:
        while True:
            if program.poll() is not None:
                raise _ended(name, program, log)
            try:
                socket.create_connection((address, port), timeout=1.0).close()
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise WorkloadError(f"{name} does not answer on {address} port {port}: {error}") from error
            time.sleep(0.002)


def _supervise(name: str, program: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait for the end of standard input, or of the program, which is an error."""
    commands = lifecycle.Commands()
    ended = os.pidfd_open(program.pid)
    watched: list[Any] = [commands, ended]
    try:
        while not commands.closed:
            readable, _, _ = select.select(watched, [], [])
            if ended in readable:
                program.wait()
                raise _ended(name, program, log)
            commands.read()
    finally:
        os.close(ended)


def _ended(name: str, program: "subprocess.Popen[bytes]", log: Path) -> WorkloadError:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    reason = lines[-1] if lines else "it printed nothing"
    return WorkloadError(f"{name} ended unexpectedly with status {program.returncode}: {reason} (see {log})")
