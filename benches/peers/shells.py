"""A common interface to programs that run a command behind an emulated link: ours, Mahimahi, Rattan, plain veth."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

#: Limit of every link's drop-tail queue, bytes: above a flow's window, so that each loss is the emulator's.
QUEUE = 64_000_000

#: Size of a delivery opportunity of a Mahimahi trace, bits.
OPPORTUNITY = 1500 * 8


@dataclass(frozen=True, slots=True)
class Link:
    """A link with equal directions.

    rate: bit/s; None for a delay alone. delay_ms: one-way delay, 0 for none.
    """

    rate: int | None = None
    delay_ms: int = 0

    @property
    def window(self) -> int:
        """Window of a flow, bytes: twice the bytes in flight on the link with 10 ms of queue, at least 256 KiB."""
        assert self.rate is not None
        return max(1 << 18, 2 * self.rate // 8 * (2 * self.delay_ms + 10) // 1000)

    def trace(self, folder: Path) -> Path:
        """Write a trace of the rate in Mahimahi's format, as even as whole milliseconds allow; return the path."""
        assert self.rate is not None
        path = folder / f"{self.rate}.trace"
        if not path.exists():
            per_ms = Fraction(self.rate, OPPORTUNITY * 1000)
            period = per_ms.denominator
            count = per_ms.numerator
            times = (-(-index * period // count) for index in range(1, count + 1))
            path.write_text("".join(f"{time}\n" for time in times))
            path.chmod(0o644)
        return path


class Shell:
    """A program that runs a command behind a link; the link's outer end is this network namespace.

    name: name in the table. far_end: outer end as seen by the command: an environment variable with the address, or the
    address.
    """

    name: str
    far_end: str

    def missing(self) -> str | None:
        """Return why the program cannot be measured here, or None."""
        raise NotImplementedError

    def start(self, link: Link, command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
        """Run `command` behind `link`."""
        return subprocess.Popen(
            [*self.arguments(link, folder), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(folder / "errors").open("wb"),
            start_new_session=True,
            user=self.user(),
            group=self.user(),
            extra_groups=[] if self.user() is not None else None,
            env=self.environment(),
            cwd="/",
        )

    def arguments(self, link: Link, folder: Path) -> list[str]:
        """Return the words before the command."""
        raise NotImplementedError

    def user(self) -> int | None:
        """Return the user who runs the program; None for the caller."""
        return None

    def environment(self) -> dict[str, str]:
        return dict(os.environ)


class Cellbed(Shell):
    name = "cellbed shell"
    far_end = "CELLBED_GATEWAY"

    def missing(self) -> str | None:
        return None

    def arguments(self, link: Link, folder: Path) -> list[str]:
        words = [sys.executable, "-m", "cellbed", "shell"]
        if link.rate:
            trace = str(link.trace(folder))
            words += ["--up", trace, "--down", trace, "--queue", f"{QUEUE} B"]
        if link.delay_ms:
            words += ["--delay", f"{link.delay_ms} ms"]
        return [*words, "--"]


class MahimahiShells(Shell):
    """Mahimahi's commands: the originals, or our replacements.

    prefix: the folder that has the commands in ``bin``.
    """

    far_end = "MAHIMAHI_BASE"

    def __init__(self, name: str, prefix: Path | None, account: str | None) -> None:
        self.name = name
        self._prefix = prefix
        self._account = account

    def missing(self) -> str | None:
        if self._prefix is None:
            return "set MAHIMAHI to the prefix it is installed under"
        if not (self._prefix / "bin" / "mm-link").exists():
            return f"no mm-link in {self._prefix}/bin"
        if self._account is not None and Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() != "1":
            # Each namespace inherits the setting of the first, and only the user should change that setting.
            return "it asks for this first: sysctl -w net.ipv4.ip_forward=1"
        return None

    def arguments(self, link: Link, folder: Path) -> list[str]:
        assert self._prefix is not None
        programs = self._prefix / "bin"
        words = [str(programs / "mm-delay"), str(link.delay_ms)] if link.delay_ms else []
        if link.rate:
            trace = str(link.trace(folder))
            words += [str(programs / "mm-link"), trace, trace]
            for way in ("uplink", "downlink"):
                words += [f"--{way}-queue=droptail", f"--{way}-queue-args=bytes={QUEUE}"]
            words.append("--")
        return words

    def user(self) -> int | None:
        # The original refuses to run as root.
        if self._account is None or os.geteuid() != 0:
            return None
        return pwd.getpwnam(self._account).pw_uid

    def environment(self) -> dict[str, str]:
        if self.user() is None:
            return dict(os.environ)
        assert self._account is not None
        return {**os.environ, "USER": self._account, "LOGNAME": self._account, "HOME": tempfile.gettempdir()}


class Rattan(Shell):
    name = "Rattan"
    far_end = "RATTAN_BASE"

    def __init__(self, program: Path | None) -> None:
        self._program = program

    def missing(self) -> str | None:
        if self._program is None:
            return "set RATTAN to the program"
        return None if self._program.is_file() else f"{self._program} is not there"

    def arguments(self, link: Link, folder: Path) -> list[str]:
        words = [str(self._program), "link"]
        for way in ("uplink", "downlink"):
            if link.rate:
                words += [f"--{way}-trace", str(link.trace(folder)), f"--{way}-queue", "droptail"]
                words += [f"--{way}-queue-args", f'{{"byte_limit": {QUEUE}}}']
            if link.delay_ms:
                words += [f"--{way}-delay", f"{link.delay_ms}ms"]
        return [*words, "--"]


class Veth(Shell):
    """No emulator: the limit of the machine and of the traffic generator. The link's rate and delay are not applied."""

    name = "plain veth"
    far_end = "10.77.0.1"

    def missing(self) -> str | None:
        if os.geteuid() != 0:
            return "needs root"
        return None if shutil.which("ip") and shutil.which("nsenter") else "needs ip and nsenter"

    def arguments(self, link: Link, folder: Path) -> list[str]:
        script = """
            unshare --net sleep infinity & holder=$!
            trap 'kill $holder' EXIT
            until [ "$(readlink /proc/$holder/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
            ip link add cellbed-bench type veth peer name eth0 netns $holder
            ip address add 10.77.0.1/30 dev cellbed-bench && ip link set cellbed-bench up
            nsenter --net=/proc/$holder/ns/net ip address add 10.77.0.2/30 dev eth0
            nsenter --net=/proc/$holder/ns/net ip link set eth0 up
            nsenter --net=/proc/$holder/ns/net "$@"
        """
        return ["bash", "-c", script, "veth"]


def all_shells(stand_in: Path) -> list[Shell]:
    """Return our shells, then the peers from MAHIMAHI (a prefix), MAHIMAHI_USER (an ordinary user) and RATTAN.

    stand_in: installation prefix of our replacements of Mahimahi's commands.
    """

    def path(name: str) -> Path | None:
        return Path(os.environ[name]).resolve() if os.environ.get(name) else None

    account = os.environ.get("MAHIMAHI_USER", "nobody")
    return [
        Cellbed(),
        MahimahiShells("cellbed's mm-link", stand_in, None),
        MahimahiShells("Mahimahi", path("MAHIMAHI"), account),
        Rattan(path("RATTAN")),
        Veth(),
    ]
