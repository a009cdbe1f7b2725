"""A headless Chromium, controlled by the DevTools protocol."""

import atexit
import itertools
import json
import shutil
import subprocess
import tempfile
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

import gevent
import pytest
from simple_websocket import Client

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--no-proxy-server", "--disable-background-networking", "--disable-component-update"),
    # The pages of other tests must not make a page a background page, which is slow.
    *("--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows"),
    # The suggestions of the address bar are pages themselves, in a process of each window; no test types an address.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
)
MISSING = "no Chromium is installed (Debian: apt-get install chromium)"
# The marks of a test in a browser: `make browser` runs it, and it is skipped where no Chromium is installed.
MARKS = [pytest.mark.browser, pytest.mark.skipif(BROWSER is None, reason=MISSING)]
PATIENCE_S = 60
MIN_PAUSE_S = 0.02
MAX_PAUSE_S = 0.5


class Connection:
    """Commands to the browser or to a page at an address of the DevTools protocol."""

    def __init__(self, address: str) -> None:
        self._line = Client(address)
        self._numbers = itertools.count(1)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        self._line.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            told = json.loads(self._line.receive(timeout=PATIENCE_S) or "{}")
            if told.get("id") == number:
                return told.get("result", {})

    def close(self) -> None:
        self._line.close()


class Program:
    """The running Chromium. A start takes more than a second of processor time, so all tests of a process share one."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="chromium")
        command = [str(BROWSER), *FLAGS, "--remote-debugging-port=0", f"--user-data-dir={self._folder}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        place = Path(self._folder) / "DevToolsActivePort"
        with gevent.Timeout(PATIENCE_S, AssertionError("the browser did not start")):
            while not place.exists() or not place.read_text().strip():
                gevent.sleep(0.05)
        self.address = f"127.0.0.1:{place.read_text().split()[0]}"
        with urllib.request.urlopen(f"http://{self.address}/json/version") as answer:
            self.connection = Connection(json.loads(answer.read())["webSocketDebuggerUrl"])

    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@cache
def _program() -> Program:
    made = Program()
    atexit.register(made.close)
    return made


def close_program() -> None:
    """Close the running Chromium, where nothing else ends the thread that listens to it: without gevent's patches the
    interpreter waits for that thread before it calls what `atexit` has."""
    if _program.cache_info().currsize:
        _program().close()
        _program.cache_clear()


class Chromium(Connection):
    """A page of a new browser: its cookies, storage and cache are separate from those of all others."""

    def __init__(self) -> None:
        if _program.cache_info().currsize and _program().ended():
            _program.cache_clear()
        self._browser = _program().connection
        self._context = self._browser.ask("Target.createBrowserContext")["browserContextId"]
        page = self._browser.ask("Target.createTarget", url="about:blank", browserContextId=self._context)
        super().__init__(f"ws://{_program().address}/devtools/page/{page['targetId']}")

    def open(self, address: str) -> None:
        self.ask("Page.navigate", url=address)

    def run(self, expression: str) -> Any:
        """Return the value of a script in the page, which runs with a user gesture."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True).get("result", {}).get("value")

    def wait_for(self, expression: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the expression is true in the page."""
        with gevent.Timeout(timeout_s, AssertionError(f"{expression} never came true at {self.run('location.href')}")):
            pause_s = MIN_PAUSE_S
            while not self.run(expression):
                gevent.sleep(pause_s)
                # A long wait is a page that computes: each look at it takes time from it.
                pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def close(self) -> None:
        super().close()
        self._browser.ask("Target.disposeBrowserContext", browserContextId=self._context)
