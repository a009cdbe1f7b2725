"""An application that connects by OAuth, and the person who authorizes it, over plain HTTP."""

import base64
import hashlib
import html
import re
import secrets
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx
from support.gateways import LocalGateway

from gateway.accounts.members import find_member, set_password

PASSWORD = "correct horse battery"
BACK = "http://localhost:49152/callback"
SCOPE = "mcp:tools mcp:resources mcp:prompts"
Json = dict[str, Any]


class Person:
    """A person with a browser, which stores cookies and submits the forms of pages."""

    def __init__(self, base: str, email: str, password: str = PASSWORD, verify: Any = True) -> None:
        self.base, self.email, self.password = base, email, password
        self.web = httpx.Client(timeout=20, verify=verify)
        own = urlsplit(base)
        self.origin = f"{own.scheme}://{own.netloc}"

    def open(self, address: str) -> httpx.Response:
        """Open a page and sign in first if necessary."""
        answer = self.web.get(address)
        if "/console/login" not in answer.headers.get("location", ""):
            return answer
        form = self.web.get(answer.headers["location"])
        back = self.submit(form, email=self.email, password=self.password)
        assert back.status_code == 303, back.text
        return self.web.get(back.headers["location"])

    def submit(self, page: httpx.Response, **values: str) -> httpx.Response:
        """Submit the page's form with its hidden fields, the first option of each list, and the given fields."""
        action = html.unescape(re.search(r'<form method="post" action="([^"]+)"', page.text).group(1))
        hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.text)
        chosen = re.findall(r'<select [^>]*name="(\w+)">\s*<option value="([^"]*)"', page.text)
        fields = {name: html.unescape(value) for name, value in (*hidden, *chosen)} | values
        return self.web.post(action, data=fields, headers={"Origin": self.origin})

    def decide(self, address: str, decision: str = "allow", **more: str) -> str:
        """Decide on the page at `address` and return the redirect URL."""
        page = self.open(address)
        if page.status_code == 302:
            return page.headers["location"]
        assert page.status_code == 200, page.text
        answer = self.submit(page, decision=decision, **more)
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]


class App:
    """An application at `base`, registered with `metadata`."""

    def __init__(self, base: str, verify: Any = True, **metadata: Any) -> None:
        self.base = base
        self.web = httpx.Client(timeout=20, verify=verify)
        registration = {
            "client_name": "An editor",
            "redirect_uris": [BACK],
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"],
            **metadata,
        }
        self.answer = self.web.post(f"{base}/oauth/register", json=registration)
        client = self.answer.json()
        self.id, self.secret = client.get("client_id", ""), client.get("client_secret", "")
        self.verifier = secrets.token_urlsafe(48)

    def address(self, **more: Any) -> str:
        """Return the URL that it opens in the browser; parameters that are None are left out."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        parameters = {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": BACK,
            "state": "the state",
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": f"{self.base}/mcp",
            **more,
        }
        return f"{self.base}/oauth/authorize?" + urlencode(
            {k: v for k, v in parameters.items() if v is not None}, doseq=True
        )

    def post(self, path: str = "/oauth/token", **fields: Any) -> httpx.Response:
        """Post a form to an endpoint as this client."""
        form = {"client_id": self.id, **({"client_secret": self.secret} if self.secret else {}), **fields}
        return self.web.post(self.base + path, data={k: v for k, v in form.items() if v is not None})

    def exchange(self, code: str, **more: Any) -> httpx.Response:
        form = {"code": code, "redirect_uri": BACK, "code_verifier": self.verifier, **more}
        return self.post(grant_type="authorization_code", **form)

    def refresh(self, token: str, **more: Any) -> httpx.Response:
        return self.post(grant_type="refresh_token", refresh_token=token, **more)

    def connect(self, person: Person) -> Json:
        """Run the complete flow and return the tokens."""
        parameters_of_redirect = parameters(person.decide(self.address()))
        assert parameters_of_redirect["state"] == "the state" and parameters_of_redirect["iss"] == self.base
        answer = self.exchange(parameters_of_redirect["code"])
        assert answer.status_code == 200, answer.text
        tokens: Json = answer.json()
        return tokens


def owner_of(gateway: LocalGateway) -> Person:
    """Return the owner of the gateway's key, who signs in by password; sign-in attempts are reset."""
    services = gateway.services
    database, control = services.store.database, services.store.control
    caller = services.accounts.authentication.caller(gateway.key)
    set_password(database, control, services.background.passwords, caller.user_id, PASSWORD, actor="test")
    database.write(lambda: database.execute("DELETE FROM attempt"))
    return Person(gateway.address, find_member(database, gateway.organization_id, caller.user_id).email)


def parameters(location: str) -> dict[str, str]:
    """Return the query parameters of a URL; each must occur once."""
    query = urlsplit(location).query
    assert all(len(values) == 1 for values in parse_qs(query).values())
    return dict(parse_qsl(query))
