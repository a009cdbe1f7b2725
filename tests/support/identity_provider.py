"""A strict OpenID provider with PKCE, refresh tokens that rotate, userinfo and logout tokens; and browsers that use it.

It refuses what a careful provider refuses: unknown clients and addresses, codes and refresh tokens that were used,
wrong verifiers, requests without nonce or state. Its answers can be falsified one by one.
"""

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import httpx
from fakes.server import FakeServer, Start, headers_of, send_json
from joserfc import jwk, jwt

CLIENT_ID = "gateway client+1"
CLIENT_SECRET = "se:cret %/+é"
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
Json = dict[str, Any]


@dataclass
class Account:
    """A person at the provider. `claims` are those of the ID token."""

    subject: str = "alice-1"
    email: str = "alice@acme.example"
    verified: bool | None = True
    name: str = "Alice Example"
    claims: Json = field(default_factory=dict)
    disabled: bool = False

    def write_claims(self) -> Json:
        claims: Json = {"sub": self.subject, "name": self.name, "email": self.email}
        if self.verified is not None:
            claims["email_verified"] = self.verified
        return {**claims, **self.claims}


class FakeIdentityProvider(FakeServer):
    """`account` signs in, None: there is no session (prompt=none fails, and a page would be shown). `falsify` changes
    the claims of ID tokens, `sign` replaces their signature, `answer` the whole answer of the token endpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        """Return to the state of a new provider."""
        self.account: Account | None = Account()
        self.accounts: dict[str, Account] = {}
        self.keys = [first_key()]
        self.falsify: Callable[[Json], Json] = lambda claims: claims
        self.sign: Callable[[Json], str] = self._sign
        self.answer: Callable[[Json], tuple[int, Json]] = lambda tokens: (200, tokens)
        self.change_document: Callable[[Json], Json] = lambda document: document
        self.gives_refresh_tokens = True
        self.silent_error = "login_required"
        self.sends_issuer = True
        self.thin_tokens = False  # ID tokens have the subject only; userinfo has the rest
        self.userinfo_status = 200
        self.requested_paths: list[str] = []
        self.authorizations: list[Json] = []
        self._codes: dict[str, Json] = {}
        self._refresh_tokens: dict[str, Json] = {}
        self._access_tokens: dict[str, Json] = {}

    @property
    def settings(self) -> Json:
        """Return the settings of an identity provider of the installation."""
        return {"name": "Acme", "issuer": self.address, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}

    def serve(self, environ: Json, start: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        self.requested_paths.append(path)
        query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
        if path == "/.well-known/openid-configuration":
            return send_json(start, 200, self.change_document(self._document()))
        if path == "/jwks":
            return send_json(start, 200, {"keys": [key.as_dict(private=False) for key in self.keys]})
        if path == "/authorize":
            return self._authorize(start, query)
        if path == "/logout":
            return self._end_session(start, query)
        if path == "/token":
            return self._token(start, headers_of(environ), dict(parse_qsl(body)))
        if path == "/userinfo":
            granted = self._access_tokens.get(headers_of(environ).get("authorization", "").removeprefix("Bearer "))
            if self.userinfo_status != 200:
                return send_json(start, self.userinfo_status, {"error": "temporarily_unavailable"})
            return send_json(start, 200 if granted else 401, granted or {"error": "invalid_token"})
        return send_json(start, 404, {})

    def logout_token(self, **changes: Any) -> str:
        """Return a logout token for the account; a change to None removes a claim."""
        now = int(time.time())
        claims = {
            "iss": self.address,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 120,
            "jti": secrets.token_hex(8),
            "sub": self.account.subject if self.account else "",
            "events": {LOGOUT_EVENT: {}},
            **changes,
        }
        return self._sign({name: value for name, value in claims.items() if value is not None})

    def disable(self, account: Account) -> None:
        """Refuse the account from now on, also its refresh tokens."""
        account.disabled = True

    def _document(self) -> Json:
        return {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "jwks_uri": f"{self.address}/jwks",
            "userinfo_endpoint": f"{self.address}/userinfo",
            "end_session_endpoint": f"{self.address}/logout?theme=dark",
            "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "authorization_response_iss_parameter_supported": self.sends_issuer,
        }

    def _authorize(self, start: Start, query: Json) -> Iterable[bytes]:
        self.authorizations.append(query)
        needed = ("redirect_uri", "state", "nonce", "code_challenge")
        is_valid = (
            query.get("client_id") == CLIENT_ID
            and query.get("response_type") == "code"
            and query.get("code_challenge_method") == "S256"
            and "openid" in query.get("scope", "").split()
            and all(query.get(name) for name in needed)
            and urlsplit(query["redirect_uri"]).path.endswith("/callback")
        )
        if not is_valid:
            return send_json(start, 400, {"error": "invalid_request", "query": query})
        answer = {"state": query["state"]}
        if self.sends_issuer:
            answer["iss"] = self.address
        if self.account is None or self.account.disabled:
            answer["error"] = self.silent_error if query.get("prompt") == "none" else "access_denied"
        else:
            answer["code"] = secrets.token_urlsafe(16)
            self._codes[answer["code"]] = {**query, "account": self.account}
        return send_redirect(start, f"{query['redirect_uri']}?{urlencode(answer)}")

    def _end_session(self, start: Start, query: Json) -> Iterable[bytes]:
        """Sign the account out (OpenID Connect RP-Initiated Logout 1.0)."""
        key_set = jwk.KeySet(self.keys)
        hint = jwt.decode(query["id_token_hint"], key_set).claims
        if self.account is None or hint["sub"] != self.account.subject or query["client_id"] != CLIENT_ID:
            return send_json(start, 400, {"error": "invalid_request"})
        self.account = None
        return send_redirect(start, query["post_logout_redirect_uri"])

    def _token(self, start: Start, headers: dict[str, str], form: Json) -> Iterable[bytes]:
        scheme, _, value = headers.get("authorization", "").partition(" ")
        named = base64.b64decode(value).decode().partition(":") if scheme == "Basic" else ("", "", "")
        if (unquote_plus(named[0]), unquote_plus(named[2])) != (CLIENT_ID, CLIENT_SECRET):
            return send_json(start, 401, {"error": "invalid_client"})
        if form.get("grant_type") == "authorization_code":
            granted = self._codes.pop(form.get("code", ""), None)
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if granted is None or granted["redirect_uri"] != form.get("redirect_uri"):
                return send_json(start, 400, {"error": "invalid_grant"})
            if granted["code_challenge"] != challenge:
                return send_json(start, 400, {"error": "invalid_grant"})
            return self._answer(start, granted["account"], granted["nonce"])
        granted = self._refresh_tokens.get(form.get("refresh_token", ""))
        if form.get("grant_type") != "refresh_token" or granted is None or granted["account"].disabled:
            return send_json(start, 400, {"error": "invalid_grant"})
        return self._answer(start, granted["account"], "", form["refresh_token"])

    def _answer(self, start: Start, account: Account, nonce: str, used: str = "") -> Iterable[bytes]:
        """Send tokens; the refresh token `used` counts no more, unless an error is sent instead."""
        now = int(time.time())
        claims = account.write_claims()
        fields = {"sub": account.subject} if self.thin_tokens else claims
        token = {"iss": self.address, "aud": CLIENT_ID, "iat": now, "exp": now + 300, **fields}
        if nonce:
            token["nonce"] = nonce
        access_token = secrets.token_urlsafe(16)
        self._access_tokens[access_token] = claims
        tokens: Json = {"access_token": access_token, "token_type": "Bearer", "expires_in": 300}
        tokens["id_token"] = self.sign(self.falsify(token))
        if self.gives_refresh_tokens:
            tokens["refresh_token"] = secrets.token_urlsafe(16)
            self._refresh_tokens[tokens["refresh_token"]] = {"account": account}
        status, body = self.answer(tokens)
        if status == 200:
            self._refresh_tokens.pop(used, None)
        return send_json(start, status, body)

    def _sign(self, claims: Json) -> str:
        key = self.keys[0]
        return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key)


class Browser:
    """A browser at a gateway. Redirects are followed one by one."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.web = httpx.Client(timeout=60)

    def get(self, path: str) -> httpx.Response:
        return self.web.get(path if path.startswith("http") else self.base + path)

    def post(self, path: str, **form: str) -> httpx.Response:
        return self.web.post(self.base + path, data=form, headers={"Origin": self.base})

    def to_provider(self, provider_id: str, query: str = "") -> str:
        """Begin a sign-in by a link, agree to it, and return the provider's address."""
        answer = self.agree(self.get(f"/console/sso/{provider_id}{query}"))
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    def agree(self, question: httpx.Response) -> httpx.Response:
        """Answer the page that a link to an identity provider leads to."""
        assert question.status_code == 200, question.text
        form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', question.text))
        return self.post(question.url.path, **{name: unescape(value) for name, value in form.items()})

    def to_callback(self, provider_id: str, query: str = "") -> str:
        """Sign in at the provider and return the address of the gateway to which it leads."""
        answer = self.get(self.to_provider(provider_id, query))
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    def sign_in(self, provider_id: str, query: str = "") -> httpx.Response:
        """Run the whole flow and return the redirect of the signed-in person."""
        answer = self.get(self.to_callback(provider_id, query))
        assert answer.status_code == 303, answer.text
        return answer

    def me(self) -> Json | None:
        """Return the answer of /user/me by the session cookie, None without a signed-in person."""
        answer = self.get("/user/me")
        return answer.json() if answer.status_code == 200 else None

    @property
    def token(self) -> str:
        return self.web.cookies.get("llmgateway.session_token", "")


@cache
def first_key() -> Any:
    """Return the key of every new provider; making one takes a second on a busy machine."""
    return make_key("first")


def make_key(kid: str) -> Any:
    return jwk.RSAKey.generate_key(2048, {"kid": kid, "use": "sig", "alg": "RS256"})


def send_redirect(start: Start, location: str) -> Iterable[bytes]:
    start("303 See Other", [("Location", location), ("Content-Length", "0")])
    return iter([b""])


def write_settings(**providers: Json) -> str:
    """Return the value of GATEWAY_IDENTITY_PROVIDERS."""
    return json.dumps(providers)
