"""A browser without scripts, for the console's pages of a gateway: it opens pages and sends their forms."""

import re
from collections.abc import Mapping
from html import unescape
from http.cookiejar import CookieJar
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, Request, build_opener

from support.console_forms import Form, FormParser


class PlainBrowser:
    """A browser without scripts: pages, forms and cookies."""

    def __init__(self, address: str, session: str = "") -> None:
        self.address = address
        self._headers = {"Origin": address, "Accept": "text/html"}
        if session:
            self._headers["Cookie"] = f"llmgateway.session_token={session}"
        self.page = ""
        self._opener: OpenerDirector = build_opener(HTTPCookieProcessor(CookieJar()))

    def open(self, url: str, data: Mapping[str, str] | None = None, status: int = 200) -> str:
        """Open a page, follow redirects, and return its text. It must have this status."""
        target = url if url.startswith("http") else self.address + url
        body = urlencode(data).encode() if data is not None else None
        request = Request(target, body, self._headers)
        try:
            answer = self._opener.open(request, timeout=600)
        except HTTPError as error:
            answer = error
        with answer:
            self.url = str(answer.url)
            self.page = answer.read().decode()
        assert answer.status == status, f"{target}: {answer.status}\n{self.page[-3000:]}"
        return self.page

    def submit(self, path: str, action: str, /, status: int = 200, **typed: str) -> str:
        """Open a page and send its form with the button `action`: what is filled in stays, and `typed` is entered."""
        return self.press(path, self._find(self.open(path), action), action, typed, status)

    def press(self, path: str, form: Form, action: str, typed: Mapping[str, str], status: int) -> str:
        """Send a form of the page that was opened last."""
        unknown = typed.keys() - form.fields
        assert not unknown, f"the form {action} has no field {unknown}"
        filled = {name: one.value for name, one in form.fields.items() if not (one.is_box and not one.value)}
        button = {"action": action} if action else {}
        return self.open(form.action or path, {**filled, **typed, **button}, status)

    def _find(self, page: str, action: str) -> Form:
        parser = FormParser()
        parser.feed(page)
        found = [form for form in parser.forms if ("action", action) in form.buttons or not action]
        assert found, f"no form with the button {action}"
        return found[0]

    def texts(self, ident: str) -> list[str]:
        """Return the texts to copy with this id."""
        found = re.findall(rf'<pre id="{ident}"[^>]*>(.*?)</pre>', self.page, re.DOTALL)
        return [unescape(text) for text in found]
