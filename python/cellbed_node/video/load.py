"""The load of the kind: one endpoint, whose browser plays a video.

Run as ``python -m cellbed_node.video.load --config FILE.json``; :class:`Settings` describes the file.
"""

import base64
import itertools
import json
from collections.abc import Generator as Steps
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed_node import generator, inputs, lifecycle, machine
from cellbed_node.browsing import browser
from cellbed_node.browsing.browser import BrowserLoad, Call, Flow, once, open_page
from cellbed_node.browsing.objects import Entries, Entry, Object, attach
from cellbed_node.generator import SECOND
from cellbed_node.lifecycle import WorkloadError
from cellbed_node.video.playback import Loaded, Playback

_PAGE = b"""<!doctype html><meta charset="utf-8"><title>video</title><link rel="icon" href="data:,">
<video muted playsinline width="320" height="180"></video>"""
"""The page is local, like the player, and does not use the link. In addition to decoding, a small picture needs little
processor time."""
_ABORTED = "net::ERR_ABORTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(browser.Settings):
    """The configuration of the load. url: url of the manifest; protocol, abr: as in ``watch`` in ``player.js``;
    scripts: files that the page runs; rule: file with the user's rule, or empty; measures: file for the measures of the
    playback; offset_ns: start of the load, since the schedule's start."""

    url: str
    protocol: str
    abr: str
    scripts: Sequence[str]
    rule: str
    measures: str
    offset_ns: int


@dataclass(slots=True)
class Chunk(Object):
    """A chunk of the video. chunk: number; rate: rate of its rendition, bit/s. step: height of its picture."""

    chunk: int | None = None
    rate: int | None = None


class VideoLoad(BrowserLoad):
    """The playback of one endpoint."""

    flags = ("--autoplay-policy=no-user-gesture-required", "--window-size=400,300")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._due.clear()  # the player requests chunks
        self._settings = settings
        self._session: str | None = None
        self._navigation_s: float | None = None
        self._numbers = itertools.count()
        self._entries = Entries(numbers=self._numbers)
        self._playback = Playback()

    @property
    def ready(self) -> bool:
        return self._navigation_s is not None

    def open_browser(self) -> Flow:
        page = yield from open_page(("Page", "Network", "Runtime", "Performance"))
        self._session = page.session
        yield "Runtime.addBinding", self._session, {"name": "cellbedReport"}
        origin = self._settings.url.rpartition("/")[0] + "/"
        yield "Fetch.enable", self._session, {"patterns": [{"urlPattern": origin}]}
        yield "Page.navigate", self._session, {"url": origin}

    def _equip(self) -> Flow:
        """Load the scripts into the page."""
        yield "Fetch.disable", self._session, {}
        *scripts, rule = map(Path, (*self._settings.scripts, self._settings.rule))
        for file in scripts:
            yield from self._evaluate(inputs.text(file), file.name)
        if self._settings.rule:
            # A function scope separates its names from those of other scripts.
            content = f"globalThis.rule = (() => {{{inputs.text(rule)}\nreturn rule }})()"
            yield from self._evaluate(content, rule.name)
        metrics = (yield "Performance.getMetrics", self._session, {})["metrics"]
        self._navigation_s = next(float(each["value"]) for each in metrics if each["name"] == "NavigationStart")
        self._entries = Entries(numbers=self._numbers)

    def _evaluate(self, script: str, name: str) -> Steps[Call, dict[str, Any], None]:
        result = yield "Runtime.evaluate", self._session, {"expression": script}
        if (details := result.get("exceptionDetails")) is not None:
            thrown = details.get("exception", {})
            reason = str(thrown.get("description") or thrown.get("value") or details["text"]).splitlines()[0]
            raise WorkloadError(f"{name}, line {details['lineNumber'] + 1}: {reason}")

    def on_event(self, method: str, session: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.bindingCalled" and self._navigation_s is not None:
            message = json.loads(params["payload"])
            at_ns = round((self._navigation_s + message["t"] / 1e3) * SECOND)
            if not self._end_ns or at_ns < self._end_ns:
                self._hear(message, at_ns)
        elif method == "Fetch.requestPaused":
            html = [{"name": "Content-Type", "value": "text/html"}]
            page = {"responseCode": 200, "responseHeaders": html, "body": base64.b64encode(_PAGE).decode()}
            self.browser.start(once("Fetch.fulfillRequest", session, requestId=params["requestId"], **page))
        elif method == "Page.loadEventFired" and self._navigation_s is None:
            self.browser.start(self._equip())
        elif method == "Inspector.targetCrashed" or (
            method == "Target.detachedFromTarget" and params["sessionId"] == self._session
        ):
            text = "the page crashed: its node may have too little memory"
            self._hear({"event": "failed", "text": text}, machine.now_ns())
        elif session == self._session:
            self._entries.on_event(method, params)
            if method in ("Network.loadingFinished", "Network.loadingFailed"):
                # The bytes of earlier requests are in the network log by now.
                over = [each for each in self._entries.entries if each.end_ns is not None]
                self._write(sorted(over, key=lambda each: each.end_ns or 0)[:-1])

    def _hear(self, message: dict[str, Any], at_ns: int) -> None:
        if (trouble := self._playback.on_message(message, at_ns)) is not None:
            made = Chunk(next(self._numbers), self._endpoint, at_ns, step="player")
            made.reply_ns, made.status, made.error = at_ns, "failed", trouble
            self._record_one(made)

    def turn(self) -> int | None:
        now, stop_ns = machine.now_ns(), self._end_ns + self._drain_ns
        if self._playback.begin_ns is None:
            if now < self._t0_ns:
                return self._t0_ns
            self._playback.begin_ns = self._t0_ns
            self.browser.start(self._watch())
        if now < self._end_ns:
            return self._end_ns
        awaited = any(each.end_ns is None for each in self._entries.entries if self._is_chunk(each))
        return stop_ns if awaited and now < stop_ns else None

    def _watch(self) -> Flow:
        asked = (self._settings.protocol, self._settings.url, self._settings.abr)
        yield from self._evaluate(f"watch({', '.join(map(json.dumps, asked))})", "the player")

    def _is_chunk(self, entry: Entry) -> bool:
        """Return whether an entry is a chunk from the network, requested before the end of the load."""
        in_time = not self._end_ns or entry.wanted_ns < self._end_ns
        return in_time and not entry.cached and entry.url in self._playback.wanted

    def _write(self, done: Sequence[Entry]) -> None:
        """Record the chunks among finished requests of the page."""
        if not done:
            return
        self.read_net_log()
        for entry in done:
            self._entries.entries.remove(entry)
            if not self._is_chunk(entry):
                continue
            wanted = self._playback.wanted[entry.url]
            made = Chunk(entry.number, self._endpoint, entry.wanted_ns)
            entry.fill(made)
            if entry.error == _ABORTED:
                made.reply_ns, made.status, made.error = None, "lost", "the player abandoned it"
            made.chunk, made.rate = round(wanted.at_s / wanted.length_s), wanted.rate
            made.step = f"{wanted.height}p"
            if made.status == "ok" and entry.end_ns is not None:
                self._playback.loaded.append(Loaded(wanted, entry.wanted_ns, entry.end_ns, entry.bytes))
            attach(made, self.net_log.wires)
            self._record_one(made)

    def _record_one(self, made: Chunk) -> None:
        self.ledger.issued += 1
        self.ledger.completed += made.status == "ok"
        self.ledger.failed += made.status == "failed"
        self.ledger.lost += made.status == "lost"
        self._record.write(made.line())

    def close(self) -> None:
        ended_ns = min(machine.now_ns(), self._end_ns or machine.now_ns())
        super().close()
        self._write(list(self._entries.entries))
        if self._playback.begin_ns is not None:
            measures = self._playback.measures(ended_ns, self._t0_ns - self._settings.offset_ns)
            Path(self._settings.measures).write_text(json.dumps(measures) + "\n", encoding="utf-8")


main = generator.program(VideoLoad, Settings)


if __name__ == "__main__":
    lifecycle.run(main)
