"""Page loads in headless Chromium."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from playwright.sync_api import Browser, Error, sync_playwright

from cellbed.experiments.evaluation.applications import Measured, Pages, Protocol, page
from cellbed.experiments.evaluation.programs.web import PORTS

_PATIENCE_MS = 120_000
_TIMING = """() => {
    const entry = performance.getEntriesByType('navigation')[0];
    return [entry.loadEventStart, entry.nextHopProtocol, performance.getEntriesByType('resource').length];
}"""
_NAMES: dict[str, Protocol] = {"http/1.1": "HTTP/1.1", "h2": "HTTP/2"}


def prepare(
    address: str, application: Pages, seed: int, program: str, certificate_hash: str
) -> Callable[[], Iterator[Measured]]:
    """Start the browser, so that only the loads are left to do. program: path of
    the browser. certificate_hash: of the server's public key."""
    playwright = sync_playwright().start()
    browser = playwright.chromium.launch(
        executable_path=program,
        timeout=_PATIENCE_MS,
        args=[
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-quic",
            f"--ignore-certificate-errors-spki-list={certificate_hash}",
        ],
    )
    # The first page of a browser takes longer than any other.
    browser.new_page().close()

    def run() -> Iterator[Measured]:
        chance = random.Random(seed)
        loads = [(name, protocol) for name in application.names for protocol in application.protocols]
        chance.shuffle(loads)
        for name, protocol in loads:
            time.sleep(chance.uniform(*application.pause_s))
            yield page(name, protocol), _load(browser, f"https://{address}:{PORTS[protocol]}/{name}/", protocol)
        browser.close()
        playwright.stop()

    return run


def _load(browser: Browser, url: str, protocol: Protocol) -> float | None:
    """Seconds from the navigation's start to the load event, in a context of its own: no cache, no connections."""
    context = browser.new_context()
    try:
        tab = context.new_page()
        tab.goto(url, wait_until="load", timeout=_PATIENCE_MS)
        loaded_ms, spoken, _ = tab.evaluate(_TIMING)
    except Error as error:
        if "Timeout" in str(error):
            return None
        raise
    finally:
        context.close()
    if _NAMES.get(spoken) != protocol:
        raise RuntimeError(f"{url} was loaded by {spoken}, not by {protocol}")
    return float(loaded_ms) / 1000
