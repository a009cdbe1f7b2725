"""Clicks from the overview answer questions: a real pointer in a real Chromium."""

import time
from collections.abc import Callable
from typing import NamedTuple

from support.chromium import Chromium

# Where an element can be pressed: false while another one covers it, or while the page is being exchanged.
PLACE = """(e => {{
    if (!e || document.querySelector(".htmx-request, .htmx-swapping, .htmx-settling")) return false;
    e.scrollIntoView({{block: "center", behavior: "instant"}});
    const r = e.getClientRects()[0], x = r.x + r.width / 2, y = r.y + r.height / 2;
    return e.contains(document.elementFromPoint(x, y)) && [x, y];
}})({element})"""
PATIENCE_S = 90.0


class Answered(NamedTuple):
    """A question, the number of clicks that answered it, and the slowest click in milliseconds."""

    question: str
    clicks: int
    slowest_ms: float


class Reader:
    """A person who reads the console and clicks."""

    def __init__(self, browser: Chromium, address: str) -> None:
        self.browser = browser
        self.address = address
        self.times_ms: list[float] = []

    def start(self) -> None:
        """Open the overview."""
        self.times_ms = []
        self.browser.open("about:blank")
        self.browser.open(f"{self.address}/console")
        self._await("document.readyState === 'complete' && !!window.htmx && !!document.querySelector('#content h1')")

    def click(self, element: str, until: str) -> None:
        """Press the pointer on an element, which a script returns, until something is true in the page."""
        place = PLACE.format(element=element)
        self._await(f"!!{place}")
        x, y = self.browser.run(place)
        began = time.perf_counter()
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.browser.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)
        self._await(until)
        self.times_ms.append((time.perf_counter() - began) * 1000)

    def reads(self, text: str) -> None:
        self._await(f"document.querySelector('#content').innerText.includes({text!r})")

    def _await(self, expression: str) -> None:
        self.browser.wait_for(expression, PATIENCE_S)

    def path(self, path: str) -> str:
        return f"location.pathname.endsWith('{path}') && !document.querySelector('.htmx-request')"

    def follow(self, selector: str, path: str, more: str = "true") -> None:
        """Click on the first link of a selector, and wait for its page."""
        self.click(f"document.querySelector({selector!r})", f"{self.path(path)} && {more}")


def ask_why_spend_rose(reader: Reader) -> None:
    """The model or key that contributed most, and its own usage by the other."""
    reader.follow(
        ".changes .reasons a[href*='measure=spend'], .changes a[href*='measure=spend']",
        "/console/explore",
        "!!document.querySelector('#content table a')",
    )


def ask_for_requests_behind_a_bar(reader: Reader) -> None:
    reader.follow(
        "#pages a[href*='/console/explore']", "/console/explore", "!!document.querySelector('.area[data-live]')"
    )
    reader.click(
        "[...document.querySelectorAll('.area rect:not(.back)')].findLast(one => one.getClientRects()[0]?.height > 4)",
        f"{reader.path('/console/logs')} && !!document.querySelector('#list tbody a.open')",
    )


def ask_for_a_lost_cache(reader: Reader) -> None:
    reader.follow(
        "#pages a[href*='/console/sessions']", "/console/sessions", "!!document.querySelector('#list tbody a')"
    )
    reader.follow("#list tbody a[href*='/sessions/turns']", "/console/sessions/turns")
    reader.reads("Cache lost")


def ask_for_the_budget_left(reader: Reader) -> None:
    reader.follow("#pages a[href*='/console/budgets']", "/console/budgets")
    reader.follow("#list tbody a[href*='/console/budgets/']", "", "!!document.querySelector('#content progress')")


def ask_for_an_unusual_day(reader: Reader) -> None:
    reader.follow(
        ".attention a[href*='/console/keys/'], .notice a[href*='/console/keys/']",
        "",
        "!!document.querySelector('.area')",
    )
    reader.reads("Latest requests")


def ask_for_an_outage(reader: Reader) -> None:
    reader.follow(".outages a[href*='/console/providers/']", "/console/providers/openai")


def ask_for_the_cost_of_a_pull_request(reader: Reader) -> None:
    reader.follow("#pages a[href*='/console/outcomes']", "/console/outcomes")
    reader.reads("Pull requests")
    reader.reads("each")


QUESTIONS: dict[str, Callable[[Reader], None]] = {
    "why did spend rise": ask_why_spend_rose,
    "which requests are behind a bar": ask_for_requests_behind_a_bar,
    "where did a session lose its cache": ask_for_a_lost_cache,
    "how much of a budget is left": ask_for_the_budget_left,
    "what happened on an unusual day": ask_for_an_unusual_day,
    "which provider has an outage": ask_for_an_outage,
    "what does a pull request cost": ask_for_the_cost_of_a_pull_request,
}


def answer(reader: Reader, question: str) -> Answered:
    """Answer a question by clicks from the overview."""
    reader.start()
    QUESTIONS[question](reader)
    return Answered(question, len(reader.times_ms), max(reader.times_ms))
