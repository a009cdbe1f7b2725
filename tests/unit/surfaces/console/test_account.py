"""The account page: names of browsers, and a second factor's QR code that every policy lets through."""

import re
from xml.etree import ElementTree

import segno

from gateway.surfaces.console.account import draw_qr_code, name_agent
from gateway.surfaces.console.pages import page
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound

URI = "otpauth://totp/llmgateway:ada%40example.com?secret=JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP&issuer=llmgateway"


def modules_of(svg: str) -> list[list[int]]:
    """Dark and light squares of the drawing, read from the runs of its path, the quiet zone left out."""
    paths = re.findall(r'<path [^>]*stroke="[^"]*" d="([^"]*)"', svg)
    dark: set[tuple[int, int]] = set()
    x = y = 0.0
    for command, numbers in re.findall(r"([Mmh])([-\d. ]+)", paths[-1]):
        given = [float(number) for number in numbers.split()]
        if command == "M":
            x, y = given
        elif command == "m":
            x, y = x + given[0], y + given[1]
        else:
            dark |= {(int(x) + step, int(y)) for step in range(int(given[0]))}
            x += given[0]
    left, top = min(one[0] for one in dark), min(one[1] for one in dark)
    size = max(one[0] for one in dark) - left + 1
    return [[int((left + column, top + row) in dark) for column in range(size)] for row in range(size)]


def test_the_drawing_is_the_code_of_the_address() -> None:
    code = segno.make_qr(URI, error="m")
    assert modules_of(draw_qr_code(URI)) == [[int(bool(one)) for one in row] for row in code.matrix]


def test_the_drawing_runs_and_loads_nothing_and_needs_no_exception() -> None:
    drawn = ElementTree.fromstring(draw_qr_code(URI))
    assert {one.tag.rpartition("}")[2] for one in drawn.iter()} <= {"svg", "g", "path"}
    names = {name for one in drawn.iter() for name in one.attrib}
    assert not [name for name in names if name in ("style", "href", "class") or name.startswith("on")]


def test_the_qr_code_needs_no_exception_from_the_content_security_policy() -> None:
    from markupsafe import Markup

    html = page(
        Inbound("POST", "/console/account", {}),
        "second_factor_setup.html",
        "Second factor",
        visitor=Visitor(None, None, {}),
        **{"secret": "S", "uri": URI, "csrf": "c", "qr_code": Markup(draw_qr_code(URI))},
    )
    policy = dict(html.headers)["Content-Security-Policy"]
    assert "<svg" in html.body.decode() and "default-src 'none'" in policy and "unsafe" not in policy


# Browser on system → the header that it sends, by the documentation of browsers.
AGENTS = {
    "Edge on Windows": "(Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 "
    "Safari/537.36 Edg/142.0.0.0",
    "Opera on Linux": "(X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36 "
    "OPR/122.0.0.0",
    "Firefox on macOS": "(Macintosh; Intel Mac OS X 10.15; rv:145.0) Gecko/20100101 Firefox/145.0",
    "Firefox on iOS": "(iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "FxiOS/145.0 Mobile/15E148 Safari/605.1.15",
    "Chrome on Android": "(Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile "
    "Safari/537.36",
    "Chrome on iOS": "(iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "CriOS/142.0.7444.77 Mobile/15E148 Safari/604.1",
    "Chrome on ChromeOS": "(X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 "
    "Safari/537.36",
    "Safari on iPadOS": "(iPad; CPU OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 "
    "Mobile/15E148 Safari/604.1",
}


def test_sessions_are_named_by_browser_and_system() -> None:
    assert {name: name_agent(f"Mozilla/5.0 {sent}") for name, sent in AGENTS.items()} == {name: name for name in AGENTS}
    assert name_agent("llmgateway-cli/2.0") == "llmgateway-cli/2.0" and name_agent("") == "Unknown client"
