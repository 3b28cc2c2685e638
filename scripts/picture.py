"""Draw the README's picture from a run: the report's charts of latency, uplink capacity and uplink queue.

    python scripts/picture.py RUN            writes docs/report.png

Needs Chromium and the development packages (`make test` installs both).
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

TARGET = Path(__file__).resolve().parent.parent / "docs" / "report.png"
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    page_file = Path(sys.argv[1], "report.html").resolve()
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=OPTIONS)
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(page_file.as_uri())
        page.wait_for_timeout(500)
        top = page.get_by_text("Latency of each request").first.bounding_box()
        bottom = page.get_by_text("Downlink capacity").bounding_box()
        if top is None or bottom is None:
            sys.exit(f"{page_file}: the report has no charts of a link")
        clip = {"x": 0, "y": top["y"] - 4, "width": 1200, "height": bottom["y"] - top["y"] - 8}
        page.screenshot(path=TARGET, full_page=True, clip=clip)
        browser.close()
    print(TARGET)


if __name__ == "__main__":
    main()
