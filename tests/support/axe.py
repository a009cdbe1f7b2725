"""Axe-core, which finds what keeps people with disabilities out of a page, and the sizes and themes of its views."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from support import npm
from support.chromium import Chromium

VERSION = {"axe-core": "4.14.1"}
CACHE = Path(__file__).resolve().parent.parent.parent / "data" / "axe"
RUN = """window.found = undefined;
axe.run(document, %s).then(result => {
    found = result.violations.map(one => one.id + ": " + one.nodes.slice(0, 3).map(node => node.html).join(" "));
}, error => { found = [String(error)]; });"""
WIDTHS = (400, 900, 1400)
THEMES = ("light", "dark")


def load_axe() -> str:
    """Return the script of axe-core from npm; "" where npm is not installed."""
    if shutil.which("npm") is None:
        return ""
    return (npm.install(CACHE, VERSION) / "axe-core" / "axe.min.js").read_text()


def find_barriers(browser: Chromium, axe: str, dark: bool = False) -> list[str]:
    """Return what axe finds on the page at rest. The dark theme differs only by its colours."""
    if browser.run("typeof window.axe") == "undefined":
        browser.run(axe)
    options = {"resultTypes": ["violations"]}
    if dark:
        options["runOnly"] = ["color-contrast", "link-in-text-block"]
    browser.run(RUN % json.dumps(options))
    browser.wait_for("window.found !== undefined")
    found: list[str] = browser.run("window.found")
    return found


def set_width(browser: Chromium, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.ask("Emulation.setDeviceMetricsOverride", **size)


def set_theme(browser: Chromium, theme: str) -> None:
    """Choose the light or dark theme, without animations."""
    features = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}
    listed = [{"name": feature, "value": value} for feature, value in features.items()]
    browser.ask("Emulation.setEmulatedMedia", features=listed)


def each_view(browser: Chromium, name: str, every: bool) -> Iterator[str]:
    """Show the open page at each width, the widest in each theme or with `every` all; yield the name of each view."""
    for width in WIDTHS:
        set_width(browser, width)
        for theme in THEMES if every or width == WIDTHS[-1] else THEMES[:1]:
            set_theme(browser, theme)
            yield f"{name}-{width}-{theme}"
