"""The load generator of the kind: one endpoint, whose browser loads a page repeatedly.

Run as ``python -m cellbed_node.web.load --config FILE.json``; :class:`Settings` describes the file.
"""

import itertools
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed_node import generator, lifecycle, machine
from cellbed_node.browsing import browser
from cellbed_node.browsing.browser import BrowserError, BrowserLoad, Flow, Page, once, open_page
from cellbed_node.browsing.objects import attach
from cellbed_node.generator import SECOND
from cellbed_node.ledger import Request
from cellbed_node.lifecycle import WorkloadError
from cellbed_node.web.loading import MEASURING, Loading, PageLoad, PageObject

MOST_OPEN = 8
"""Maximum pages of an endpoint that load at a time; further ones wait."""
_WAITED = "the browser had no page free for it in time"
_WARM_NS = 25 * SECOND
"""Time limit of the load that fills the cache: programs must have connected within 30 s."""
_SETTLE_NS = 5 * SECOND
"""Time limit from a load event until the page has reported its paints."""
_SHOWN = 10
"""Maximum number of hosts in a note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(browser.Settings):
    """The configuration of the load. page: name in reports; har: prefix of the HAR files of loads; objects: file for
    the objects; warm: whether loads share a cache."""

    page: str
    url: str
    har: str
    objects: str
    warm: bool


class WebLoad(BrowserLoad):
    """The page loads of one endpoint."""

    flags = ("--window-size=412,915",)  # CSS pixels: a large phone

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._settings = settings
        self._objects = lifecycle.open_record(Path(settings.objects))
        self._spare: deque[Page] = deque()
        self._loads: dict[str, Loading] = {}  # by session
        self._queue: deque[PageLoad] = deque()
        self._answered: dict[int, Loading] = {}
        self._unattached: list[PageObject] = []
        self._elsewhere: Counter[str] = Counter()
        self._opening = 0
        self._numbers = itertools.count()
        self._warmed = not settings.warm

    @property
    def ready(self) -> bool:
        if self._spare and not self._warmed and not self._loads:
            first = PageLoad(-1, self._endpoint, machine.now_ns(), step=self._settings.page)
            self._load(first)
        return bool(self._spare) and self._warmed

    def open_browser(self, context: str | None = None) -> Flow:
        """Open a page for the next load. context: with the cache and connections of earlier loads."""
        self._opening += 1
        page = yield from open_page(("Page", "Network", "Performance"), context)
        self._opening -= 1
        self._spare.append(page)
        while self._queue and self._spare:
            request = self._queue.popleft()
            if machine.now_ns() < request.intended_ns + self._settings.timeout_ns:
                self._load(request)
            else:
                self.ledger.lose(request.request, _WAITED)

    def create(self, number: int, intended_ns: int) -> PageLoad:
        return PageLoad(number, self._endpoint, intended_ns, step=self._settings.page)

    def issue(self, request: Request) -> None:
        assert isinstance(request, PageLoad)
        self.ledger.add(request)
        if self._spare:
            self._load(request)
        else:
            self._queue.append(request)
            self._replenish()

    def _replenish(self) -> None:
        """Open a page if loads wait and the maximum is not reached, or if there is no page."""
        under_way = len(self._loads) + self._opening + len(self._spare)
        if (self._queue or not under_way) and self._opening <= len(self._queue) and under_way < MOST_OPEN:
            context = next((each.context for each in self._loads.values()), None) if self._settings.warm else None
            self.browser.start(self.open_browser(context))

    def _load(self, request: PageLoad) -> None:
        page = self._spare.popleft()
        request.started_ns = machine.now_ns()
        limit_ns = self._settings.timeout_ns if request.request >= 0 else min(_WARM_NS, self._settings.timeout_ns)
        deadline_ns = request.intended_ns + limit_ns
        made = Loading(
            request=request,
            session=page.session,
            target=page.target,
            context=page.context,
            numbers=self._numbers,
            deadline_ns=deadline_ns,
        )
        self._loads[page.session] = made
        self.browser.start(self._navigate(made))
        if self._queue:
            self._replenish()

    def _navigate(self, made: Loading) -> Flow:
        try:
            result = yield "Page.navigate", made.session, {"url": self._settings.url}
        except BrowserError as error:
            result = {"errorText": str(error)}
        if (trouble := result.get("errorText")) and made.session in self._loads:
            self._end(made, str(trouble))

    def on_event(self, method: str, session: str | None, params: dict[str, Any]) -> None:
        made = self._loads.get(session or "")
        if method == "Target.detachedFromTarget" and (made := self._loads.get(params["sessionId"])) is not None:
            self._end(made, "the page crashed")
        elif method == "Inspector.targetCrashed" and made is not None:
            self._end(made, "the page crashed: its node may have too little memory")
        elif method == "Page.javascriptDialogOpening":
            self.browser.start(once("Page.handleJavaScriptDialog", session, accept=True))
        elif made is not None and method == "Page.loadEventFired":
            if made.entries and made.entries[0].error is None and not made.loaded:
                made.loaded, made.deadline_ns = True, machine.now_ns() + _SETTLE_NS
                made.request.reply_ns = round(params["timestamp"] * SECOND)
                self.browser.start(self._measure(made))
        elif made is not None:
            made.on_event(method, params)

    def _measure(self, made: Loading) -> Flow:
        script = {"expression": MEASURING, "awaitPromise": True, "returnByValue": True}
        try:
            result = (yield "Runtime.evaluate", made.session, script)["result"]
            metrics = (yield "Performance.getMetrics", made.session, {})["metrics"]
        except BrowserError:
            result, metrics = {}, []
        if made.session not in self._loads:
            return
        found, times = result.get("value"), {each["name"]: each["value"] for each in metrics}
        if found is not None and times.get("NavigationStart"):
            found["navigation_s"] = times["NavigationStart"]
            if found["load"]:
                made.request.reply_ns = round((found["navigation_s"] + found["load"] / 1e3) * SECOND)
        else:
            found = None
        self._end(made, None, found)

    def _end(self, made: Loading, trouble: str | None, found: dict[str, Any] | None = None) -> None:
        """End a load. trouble: why it failed; found: as in :meth:`Loading.measure`."""
        request, reply_ns = made.request, made.request.reply_ns
        del self._loads[made.session]
        made.measure(found)
        self._note(made)
        if trouble is None and reply_ns is not None:
            # The next load of a closed loop begins when its page is open.
            self._answered[request.request] = made
        else:
            self.ledger.lose(request.request, trouble or "no load event")
        self.browser.start(self._settle(made))
        if request.request < 0:
            if trouble is not None:
                raise WorkloadError(f"{self._settings.url}: the load that fills the cache failed: {trouble}")
            self._warmed = True

    def _settle(self, made: Loading) -> Flow:
        try:
            if self._settings.warm:
                yield from self.open_browser(made.context)
                yield "Target.closeTarget", None, {"targetId": made.target}
            else:
                yield "Target.disposeBrowserContext", None, {"browserContextId": made.context}
                if not self._spare:
                    yield from self.open_browser()
        except BrowserError as error:
            self.trouble = str(error)
        self._answer(made.request.request)

    def _answer(self, number: int) -> None:
        """Finish a load that has a load event."""
        if (made := self._answered.pop(number, None)) is not None:
            reply_ns, broken = made.request.reply_ns, made.entries[0].problem
            assert reply_ns is not None
            self.ledger.reply(number, reply_ns, error=broken, start=0, end=0, payload=made.request.bytes_down)

    def _note(self, made: Loading) -> None:
        """Record a finished load, and the objects of earlier loads, whose bytes are now in the log."""
        if made.request.request < 0:
            return
        Path(f"{self._settings.har}{made.request.request:04}.har").write_text(made.har(), encoding="utf-8")
        self._record_objects()
        self._unattached += made.objects()
        self._elsewhere.update(made.elsewhere())

    def _record_objects(self) -> None:
        self.read_net_log()
        for each in sorted(self._unattached, key=lambda made: made.sent_ns or 0):
            attach(each, self.net_log.wires)
        for each in self._unattached:
            self._objects.write(each.line())
        self._unattached.clear()

    @property
    def wake_ns(self) -> int | None:
        return min((each.deadline_ns for each in self._loads.values()), default=None)

    def drive(self, readable: Sequence[object], writable: Sequence[object]) -> None:
        super().drive(readable, writable)
        self.ledger.expire(now := machine.now_ns())
        for made in [each for each in self._loads.values() if each.deadline_ns <= now]:
            self._end(made, None if made.loaded else made.unfinished)

    def close(self) -> None:
        for made in list(self._loads.values()):
            made.measure(None)
            self._note(made)
            self.ledger.lose(made.request.request, made.unfinished)
        for request in self._queue:
            self.ledger.lose(request.request, _WAITED)
        for number in list(self._answered):
            self._answer(number)
        # Closing the browser may take longer than the time limit of a program.
        self.ledger.close(machine.now_ns())
        super().close()
        self._record_objects()
        self._objects.close()
        if self._elsewhere:
            shown = ", ".join(f"{host} ({count}×)" for host, count in self._elsewhere.most_common(_SHOWN))
            lifecycle.announce("note", text=f"requests of hosts that the testbed does not have failed: {shown}")


main = generator.program(WebLoad, Settings)


if __name__ == "__main__":
    lifecycle.run(main)
