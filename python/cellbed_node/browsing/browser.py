"""Chromium without a window, driven by the DevTools protocol over two pipes.

The browser ends when the pipes close, so no browser outlives the program that started it. Chromium's sandbox needs user
namespaces and refuses root. The browser of root therefore runs as the user `nobody`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed_node import generator, inputs
from cellbed_node.browsing.netlog import NetLog
from cellbed_node.lifecycle import WorkloadError, announce
from cellbed_node.processes import die_with_parent, kill, last_line
from cellbed_node.temporary import remove_tree

FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-field-trial-config",
    "--disable-site-isolation-trials",  # frames of a page are in its process, and so in its events
    "--disable-features=IsolateOrigins,site-per-process,OptimizationHints,MediaRouter,Translate",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--force-device-scale-factor=1",
    "--mute-audio",
)
Call = tuple[str, str | None, dict[str, Any]]
"""A command of the protocol: name, session of a page (``None``: the browser), parameters."""
Flow = Generator[Call, dict[str, Any], None]
"""Commands in sequence; each yields the result of the command before."""
_READ = 1 << 20
_LARGEST = 64 << 20
_PATIENCE_S = 1.5
"""Maximum wait for the end of the browser: a program has 3 s after the drain."""


_NOBODY = 65534
_SANDBOX = '[ "$(id -u)" != 0 ] || { echo cannot give up root >&2; exit 1; }; exec unshare --user --net true'


def sandbox_obstacle() -> str | None:
    """Return why this user's browser has no sandbox here, with the remedy; ``None`` if it has a sandbox."""
    tried = subprocess.run(
        ["sh", "-c", _SANDBOX], stdin=subprocess.DEVNULL, capture_output=True, preexec_fn=_give_up_root, check=False
    )
    if tried.returncode == 0:
        return None
    why = last_line(tried.stderr) or f"exit status {tried.returncode}"
    return f"Chromium's sandbox is not possible here ({why}): allow user namespaces to ordinary users"


def _give_up_root() -> None:
    """Change to the user `nobody`, if this process is root and may."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)


class BrowserError(Exception):
    """A command that the browser refused."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page in the browser, with its identifiers in the protocol. context: holds cache and connections."""

    session: str
    target: str
    context: str


def open_page(domains: Sequence[str], context: str | None = None) -> Generator[Call, dict[str, Any], Page]:
    """Open an empty page and return it. domains: protocol domains whose events are sent; context: context of an earlier
    page, ``None``: a new one."""
    if context is None:
        made = yield "Target.createBrowserContext", None, {"disposeOnDetach": True}
        context = str(made["browserContextId"])
    made = yield "Target.createTarget", None, {"url": "about:blank", "browserContextId": context, "newWindow": True}
    target = made["targetId"]
    made = yield "Target.attachToTarget", None, {"targetId": target, "flatten": True}
    for domain in domains:
        yield f"{domain}.enable", made["sessionId"], {}
    return Page(made["sessionId"], target, context)


def once(method: str, session: str | None, **params: Any) -> Flow:
    """Run a single command and ignore a refusal."""
    with contextlib.suppress(BrowserError):
        yield method, session, params


class Browser:
    """A running browser. event: called with the method, session and parameters of each event."""

    def __init__(
        self,
        program: str,
        flags: Sequence[str],
        folder: Path,
        event: Callable[[str, str | None, dict[str, Any]], None],
        *,
        sandboxed: bool | None = None,
        enter: Callable[[], None] | None = None,
    ) -> None:
        """Start the browser. folder: existing folder for its files. enter: called first in its process, e.g. to enter
        namespaces. sandboxed: ``None``: if possible, else announce that there is no sandbox. Errors:
        :class:`WorkloadError`."""
        if sandboxed is None and (obstacle := sandbox_obstacle()) is not None:
            announce("note", text=f"the browser runs without a sandbox: {obstacle}")
            sandboxed = False
        if sandboxed is False:
            flags = [*flags, "--no-sandbox"]
        self._event, self._number = event, 0
        self._waiting: dict[int, Flow] = {}
        self._rest = bytearray()
        self.errors = folder / "chromium.err"
        read, theirs_out = os.pipe()
        theirs_in, self._write = os.pipe()
        if os.geteuid() == 0:
            with contextlib.suppress(OSError):  # this user namespace has no such user
                for its in (folder, theirs_in, theirs_out):
                    os.chown(its, _NOBODY, _NOBODY)
                if closed := [each for each in folder.parents if not each.stat().st_mode & 1]:
                    text = f"the browser's user cannot enter {closed[0]}: export TMPDIR=/var/tmp"
                    raise WorkloadError(text)

        def prepare() -> None:
            if enter is not None:
                enter()
            _give_up_root()
            die_with_parent()  # last: a change of user clears it

        # The browser reads commands from descriptor 3 and writes to 4; our pipes must have other numbers.
        # Shells do not duplicate descriptors above 9, but open their files.
        script = 'exec "$0" "$@" 3<"/proc/self/fd/$BROWSER_IN" 4>"/proc/self/fd/$BROWSER_OUT"'
        command = ["sh", "-c", script, program, "--remote-debugging-pipe"]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "BROWSER_IN": str(theirs_in),
            "BROWSER_OUT": str(theirs_out),
        }
        try:
            with self.errors.open("wb") as errors:
                self.process = subprocess.Popen(
                    [*command, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=(theirs_in, theirs_out),
                    start_new_session=True,
                    preexec_fn=prepare,
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise WorkloadError(f"cannot start {program}: {error}") from error
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._read = read
        os.set_blocking(read, False)

    def fileno(self) -> int:
        return self._read

    def start(self, flow: Flow) -> None:
        """Begin a flow of commands; each reply continues it. Errors: :class:`WorkloadError`."""
        self._advance(lambda: next(flow), flow)

    def _advance(self, step: Callable[[], Call], flow: Flow) -> None:
        try:
            method, session, params = step()
        except StopIteration:
            return
        except BrowserError as error:
            raise WorkloadError(f"the browser refused a command: {error}") from None
        self._number += 1
        self._waiting[self._number] = flow
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            command["sessionId"] = session
        try:
            data = json.dumps(command).encode() + b"\0"
            while data:
                data = data[os.write(self._write, data) :]
        except OSError:
            raise self.failure() from None

    def read(self) -> None:
        """Read received messages. Errors: :class:`WorkloadError` when the browser has ended."""
        try:
            data = os.read(self._read, _READ)
        except BlockingIOError:
            return
        if not data or len(self._rest) > _LARGEST:
            raise self.failure()
        self._rest += data
        *messages, self._rest = self._rest.split(b"\0")
        for text in messages:
            message = json.loads(text)
            if (flow := self._waiting.pop(message.get("id"), None)) is None:
                if "method" in message:
                    self._event(message["method"], message.get("sessionId"), message["params"])
            elif "error" in message:
                error = BrowserError(str(message["error"].get("message")))
                self._advance(lambda flow=flow, error=error: flow.throw(error), flow)  # type: ignore[misc]
            else:
                result = message["result"]
                self._advance(lambda flow=flow, result=result: flow.send(result), flow)  # type: ignore[misc]

    def failure(self) -> WorkloadError:
        """Return why the browser has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        lines = inputs.content(self.errors).decode("utf-8", "replace").strip().splitlines()
        fatal = [line for line in lines if ":FATAL:" in line] or lines[-1:]
        status = self.process.poll()
        if status == -signal.SIGKILL:
            return WorkloadError("the browser was killed: its node may have too little memory, write 1 GiB or more")
        return WorkloadError(f"the browser has ended (status {status}): {fatal[0] if fatal else ''}")

    def close(self) -> None:
        """End the browser and its children when its files are written, or after a time limit."""
        with contextlib.suppress(OSError):
            os.write(self._write, b'{"id":0,"method":"Browser.close"}\0')
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_PATIENCE_S)
        kill(self.process)
        for descriptor in (self._write, self._read):
            os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(generator.Settings):
    """The configuration of a :class:`BrowserLoad`. program: the browser; flags: besides the kind's; folder: new folder
    for its files."""

    program: str
    flags: Sequence[str]
    folder: str


class BrowserLoad(generator.Generator):
    """A load whose requests a browser sends; a kind also overrides :meth:`open` and :meth:`on_event`.

    flags: flags of the browser. net_log: the browser's log of its network.
    """

    writers = ()
    flags: Sequence[str] = ()
    patience_ns = 60 * generator.SECOND
    trouble = "the browser did not start in time"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._program, self._flags = settings.program, settings.flags
        self._folder = Path(settings.folder)
        self.net_log = NetLog(self._folder / "net.json")
        self._browser: Browser | None = None

    @property
    def browser(self) -> Browser:
        """The browser, after its start."""
        assert self._browser is not None
        return self._browser

    def open_browser(self) -> Flow:
        """Open the first page."""
        raise NotImplementedError

    def on_event(self, method: str, session: str | None, params: dict[str, Any]) -> None:
        """Process an event of the browser."""
        raise NotImplementedError

    def prepare(self) -> None:
        remove_tree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        flags = [*self._flags, *self.flags, f"--log-net-log={self._folder / 'net.json'}"]
        self._browser = Browser(self._program, flags, self._folder, self.on_event)
        self._browser.start(self.open_browser())

    def read_net_log(self) -> None:
        """Read the browser's new log entries."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            self.net_log.read()

    @property
    def readers(self) -> Sequence[Any]:
        return [self._browser] if self._browser is not None else []

    def drive(self, readable: Sequence[object], writable: Sequence[object]) -> None:
        if self._browser in readable:
            self.browser.read()

    def close(self) -> None:
        if self._browser is not None:
            self._browser.close()
            self.read_net_log()
        remove_tree(self._folder, ignore_errors=True)
