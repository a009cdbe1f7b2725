"""A headless Chromium, controlled by the DevTools protocol."""

import itertools
import json
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import gevent
from simple_websocket import Client

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--no-proxy-server", "--disable-background-networking", "--disable-component-update"),
)
MISSING = "no Chromium is installed (Debian: apt-get install chromium)"
PATIENCE_S = 60


class Chromium:
    """A browser with a page and a separate profile."""

    def __init__(self, folder: Path) -> None:
        command = [str(BROWSER), *FLAGS, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._numbers = itertools.count(1)
        place = folder / "DevToolsActivePort"
        with gevent.Timeout(PATIENCE_S, AssertionError("the browser did not start")):
            while not place.exists() or not place.read_text().strip():
                gevent.sleep(0.05)
        port = place.read_text().split()[0]
        self._line = Client(self._page_at(port))

    def _page_at(self, port: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = [one for one in json.loads(answer.read()) if one["type"] == "page"]
        return str(pages[0]["webSocketDebuggerUrl"])

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        self._line.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            told = json.loads(self._line.receive(timeout=PATIENCE_S) or "{}")
            if told.get("id") == number:
                return told.get("result", {})

    def open(self, address: str) -> None:
        self.ask("Page.navigate", url=address)

    def run(self, expression: str) -> Any:
        """Return the value of a script in the page, which runs with a user gesture."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True).get("result", {}).get("value")

    def wait_for(self, expression: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until the expression is true in the page."""
        with gevent.Timeout(patience_s, AssertionError(f"{expression} never came true at {self.run('location.href')}")):
            while not self.run(expression):
                gevent.sleep(0.05)

    def close(self) -> None:
        self._line.close()
        self._process.kill()
        self._process.wait()
