"""Scripts that watch what a page in Chromium loads and violates, and its screenshots."""

import base64
import os
from pathlib import Path

from support.chromium import Chromium

# The folder of the screenshots (`make screenshots`); "" for none.
FOLDER = os.environ.get("SCREENSHOTS", "")
WATCH = """window.violations = [];
document.addEventListener("securitypolicyviolation", event => violations.push(event.violatedDirective));
"""
HOSTS = """[...document.querySelectorAll("[src], link[href]")].map(one => new URL(one.src || one.href).host)
    .concat(performance.getEntriesByType("resource").map(one => new URL(one.name).host))"""


def save(browser: Chromium, name: str) -> None:
    """Write a screenshot of the page into FOLDER, without bars for scrolling, which few systems show."""
    browser.ask("Emulation.setScrollbarsHidden", hidden=True)
    path = Path(FOLDER) / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    shot = browser.ask("Page.captureScreenshot", format="png", captureBeyondViewport=False)
    path.write_bytes(base64.b64decode(shot["data"]))
