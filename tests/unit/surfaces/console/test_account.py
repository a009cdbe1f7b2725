"""The page that begins a second factor shows its secret as a QR code that every policy lets through."""

import re
from xml.etree import ElementTree

import segno

from gateway.surfaces.console.account import draw_qr_code
from gateway.surfaces.console.pages import page
from gateway.surfaces.http import Inbound
from gateway.surfaces.visitor import Visitor

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
