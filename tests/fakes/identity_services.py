"""Strict fakes of the services from which the gateway's host obtains credentials at Google, Azure and AWS.

    with FakeGoogleIdentity() as google:
        environment = {"GCE_METADATA_HOST": google.host}

Each request is checked against the vendor's documentation: method, path, query, headers and form. Every answer has a
new token, `issued` in order; the official clients of the vendors accept the answers. `problems` are refused requests.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import gevent
from fakes import bedrock_types as published
from fakes.server import FakeServer, headers_of, send_json

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
SCOPES = (SCOPE, "https://www.googleapis.com/auth/iam")  # the second is enough for impersonation
AUDIENCE = "//iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/pool/providers/cluster"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT = "urn:ietf:params:oauth:token-type:jwt"
AWS_TOKEN = "urn:ietf:params:aws:token-type:aws4_request"
ACCOUNT = "robot@acme.iam.gserviceaccount.com"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
TENANT = "11111111-2222-3333-4444-555555555555"
CLIENT = "99999999-8888-7777-6666-555555555555"
RESOURCE = "https://cognitiveservices.azure.com"
ROLE = "arn:aws:iam::123456789012:role/gateway"
OTHER_ROLE = "arn:aws:iam::210987654321:role/bedrock"
STS_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


@dataclass(frozen=True)
class Failure:
    """A scripted failure of the next request for a token; without a status the server is silent for `silence_s`."""

    status: int = 0
    body: Any = field(default_factory=dict)
    silence_s: float = 0.0


class Refused(Exception):
    """A request that the service refuses, with the status and the body of its answer."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(str(body))
        self.status, self.body = status, body


class IdentityServer(FakeServer):
    """The base class of the services. `lifetime_s` is that of new tokens, `repeats` returns the last token again."""

    prefix = "token"

    def __init__(self) -> None:
        super().__init__()
        self.lifetime_s = 3600
        self.repeats = False
        self.issued: list[str] = []
        self.problems: list[Any] = []

    @property
    def host(self) -> str:
        return urlsplit(self.address).netloc

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        headers = headers_of(environ)
        body = environ["wsgi.input"].read()
        target = urlsplit(environ["fake.target"])
        self.calls.append((environ["REQUEST_METHOD"], target.path))
        more: tuple[tuple[str, str], ...] = ()
        try:
            answer, more = self.answer(environ["REQUEST_METHOD"], target, headers, body, environ)
            status = 200
        except Refused as refused:
            self.problems.append(refused.body)
            status = refused.status
            answer = refused.body
            more = self.refusal_headers(target.path)
        if isinstance(answer, str):
            start(f"{status} Scripted", [("Content-Type", "text/plain"), *more])
            return iter([answer.encode()])
        return send_json(start, status, answer, *more)

    def answer(
        self, method: str, target: Any, headers: dict[str, str], body: bytes, environ: dict[str, Any]
    ) -> tuple[Any, tuple[tuple[str, str], ...]]:
        raise NotImplementedError

    def refusal_headers(self, path: str) -> tuple[tuple[str, str], ...]:
        return ()

    def issue(self) -> str:
        """Return a new token after the scripted failure of the next request, if there is one."""
        failure = self.next_answer(None)
        if failure is not None:
            gevent.sleep(failure.silence_s)
            if failure.status:
                raise Refused(failure.status, failure.body)
        if not (self.repeats and self.issued):
            self.issued.append(f"{self.prefix}-{len(self.issued) + 1}")
        return self.issued[-1]


def form_of(body: bytes, environ: dict[str, Any]) -> dict[str, str]:
    """Return the fields of a form, each of which is given once."""
    if not environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        raise Refused(400, {"error": "invalid_request", "error_description": "not a form"})
    fields = parse_qs(body.decode(), strict_parsing=True, keep_blank_values=True)
    assert all(len(values) == 1 for values in fields.values()), fields
    return {name: values[0] for name, values in fields.items()}


def expect(condition: object, status: int, body: Any) -> None:
    if not condition:
        raise Refused(status, body)


class FakeGoogleIdentity(IdentityServer):
    """The metadata server, the Security Token Service, the impersonation service and a source of subject tokens.

    `subjects` are the accepted subject tokens. `aws` verifies the signed requests of roles of AWS.
    """

    prefix = "ya29.federated"

    def __init__(self) -> None:
        super().__init__()
        self.subjects = {"subject-1"}
        self.aws: FakeAwsIdentity | None = None
        self.project = "acme"

    def federation(self, **more: Any) -> dict[str, Any]:
        """Return a configuration file, as `gcloud iam workload-identity-pools create-cred-config` writes it."""
        return {
            "type": "external_account",
            "audience": AUDIENCE,
            "subject_token_type": JWT,
            "token_url": f"{self.address}/v1/token",
            "universe_domain": "googleapis.com",
            **more,
        }

    def refusal_headers(self, path: str) -> tuple[tuple[str, str], ...]:
        return (("Metadata-Flavor", "Google"),) if path.startswith("/computeMetadata/") else ()

    @property
    def impersonation_url(self) -> str:
        return f"{self.address}/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken"

    def answer(self, method, target, headers, body, environ):
        if target.path.startswith("/computeMetadata/v1/"):
            return self._metadata(method, target, headers), (("Metadata-Flavor", "Google"),)
        if target.path == "/v1/token" and method == "POST":
            return self._exchange(form_of(body, environ)), ()
        if target.path == urlsplit(self.impersonation_url).path and method == "POST":
            return self._impersonate(headers, json.loads(body)), ()
        if target.path == "/subject" and method == "GET":
            expect(headers.get("metadata") == "true", 403, "Forbidden")
            return {"access_token": next(iter(self.subjects))}, ()
        if method == "GET" and target.path == "/":
            return "computeMetadata/\n", (("Metadata-Flavor", "Google"),)
        raise Refused(404, "Not Found")

    def _metadata(self, method: str, target: Any, headers: dict[str, str]) -> Any:
        expect(method == "GET", 405, "Method Not Allowed")
        expect(headers.get("metadata-flavor") == "Google" and "x-forwarded-for" not in headers, 403, "Forbidden")
        path = target.path.removeprefix("/computeMetadata/v1/")
        if path == "project/project-id":
            return self.project
        if path == "instance/service-accounts/default/":
            return {"aliases": ["default"], "email": ACCOUNT, "scopes": [SCOPE]}
        if path == "universe/universe-domain":
            return "googleapis.com"
        known = path in (
            "instance/service-accounts/default/token",
            f"instance/service-accounts/{ACCOUNT}/token",
        )
        expect(known, 404, "Not Found")
        scopes = parse_qs(target.query).get("scopes", [SCOPE])
        expect(scopes == [SCOPE], 400, "Bad Request")
        return {"access_token": self.issue(), "expires_in": self.lifetime_s, "token_type": "Bearer"}

    def _exchange(self, form: dict[str, str]) -> Any:
        wrong = {"error": "invalid_request", "error_description": f"Invalid value for field of {sorted(form)}"}
        expect(form.get("grant_type") == GRANT and form.get("scope") in SCOPES, 400, wrong)
        expect(form.get("requested_token_type", "").endswith(":access_token"), 400, wrong)
        audience = {"error": "invalid_target", "error_description": f"The audience {form.get('audience')} is unknown"}
        expect(form.get("audience") == AUDIENCE, 400, audience)
        grant = {"error": "invalid_grant", "error_description": f"ID Token {form.get('subject_token')} is stale"}
        if form.get("subject_token_type") == AWS_TOKEN:
            expect(self.aws is not None and self.aws.accepts_identity(form["subject_token"]), 400, grant)
        else:
            expect(form.get("subject_token_type") == JWT and form["subject_token"] in self.subjects, 400, grant)
        kind = "urn:ietf:params:oauth:token-type:access_token"
        token = self.issue()
        return {"access_token": token, "issued_token_type": kind, "token_type": "Bearer", "expires_in": self.lifetime_s}

    def _impersonate(self, headers: dict[str, str], body: dict[str, Any]) -> Any:
        denied = {"error": {"code": 403, "message": "denied", "status": "PERMISSION_DENIED"}}
        expect(headers.get("authorization") == f"Bearer {self.issued[-1]}", 403, denied)
        expect(body["scope"] == [SCOPE] and body["lifetime"] == "3600s", 400, {"error": {"status": "INVALID_ARGUMENT"}})
        self.issued.append(f"ya29.impersonated-{len(self.issued)}")
        return {"accessToken": self.issued[-1], "expireTime": moment(self.lifetime_s)}


class FakeEntra(IdentityServer):
    """The token endpoint of Microsoft Entra, and the managed identities of virtual machines and of App Service."""

    prefix = "eyJ0eXAi.entra"

    def __init__(self) -> None:
        super().__init__()
        self.assertions = {"federated-1"}
        self.secret = "client-secret-1"
        self.identity_header = "identity-header-1"

    def answer(self, method, target, headers, body, environ):
        if target.path == f"/{TENANT}/oauth2/v2.0/token" and method == "POST":
            return self._exchange(form_of(body, environ)), ()
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        if target.path == "/metadata/identity/oauth2/token" and method == "GET":
            expect(headers.get("metadata") == "true", 400, {"error": "invalid_request"})
            expect(query.get("api-version") == "2018-02-01", 400, {"error": "invalid_request"})
            return self._managed(query), ()
        if target.path == "/msi/token" and method == "GET":
            expect(headers.get("x-identity-header") == self.identity_header, 401, {"statusCode": 401, "message": "no"})
            expect(query.get("api-version") == "2019-08-01", 400, {"error": "invalid_request"})
            answer = self._managed(query)
            return {name: text for name, text in answer.items() if name != "expires_in"}, ()
        raise Refused(404, {"error": "not_found"})

    def _exchange(self, form: dict[str, str]) -> Any:
        expect(form.get("grant_type") == "client_credentials" and form.get("scope") == f"{RESOURCE}/.default", 400, {})
        unknown = {"error": "unauthorized_client", "error_codes": [700016], "error_description": "AADSTS700016: no app"}
        expect(form.get("client_id") == CLIENT, 400, unknown)
        if "client_secret" in form:
            wrong = {"error": "invalid_client", "error_codes": [7000215], "error_description": "AADSTS7000215: wrong"}
            expect(form["client_secret"] == self.secret, 401, wrong)
        else:
            text = f"AADSTS700024: Client assertion {form.get('client_assertion')} is not within its valid time range."
            late = {"error": "invalid_client", "error_codes": [700024], "error_description": text}
            expect(form.get("client_assertion_type") == ASSERTION, 400, {"error": "invalid_request"})
            expect(form.get("client_assertion") in self.assertions, 401, late)
        lifetime_s = self.lifetime_s
        token = self.issue()
        return {"token_type": "Bearer", "expires_in": lifetime_s, "ext_expires_in": lifetime_s, "access_token": token}

    def _managed(self, query: dict[str, str]) -> dict[str, Any]:
        expect(query.get("resource") == RESOURCE, 400, {"error": "invalid_resource"})
        missing = {"error": "invalid_request", "error_description": "Identity not found"}
        expect(query.get("client_id", CLIENT) == CLIENT, 400, missing)
        now = int(datetime.now(UTC).timestamp())
        numbers = {"expires_in": self.lifetime_s, "expires_on": now + self.lifetime_s, "not_before": now}
        fields = {name: str(number) for name, number in numbers.items()}
        return {
            "access_token": self.issue(),
            "resource": RESOURCE,
            "token_type": "Bearer",
            "client_id": CLIENT,
            **fields,
        }


class FakeAwsIdentity(IdentityServer):
    """The Security Token Service, the metadata service of EC2 (only its second version), and that of containers.

    `issued` are access key ids; `keys` are all parts of each. `tokens` are the accepted web identity tokens.
    """

    prefix = "ASIA"

    def __init__(self) -> None:
        super().__init__()
        self.tokens = {"web-1"}
        self.keys: dict[str, tuple[str, str, str]] = {}
        self.sessions: set[str] = set()
        self.authorization = "container-1"
        self.role_name = "gateway-role"

    def answer(self, method, target, headers, body, environ):
        if target.path == "/latest/api/token":
            expect(method == "PUT" and "x-forwarded-for" not in headers, 403, "Forbidden")
            expect(headers.get("x-aws-ec2-metadata-token-ttl-seconds", "").isdigit(), 400, "Bad Request")
            self.sessions.add(f"imds-{len(self.sessions)}")
            return f"imds-{len(self.sessions) - 1}", ()
        if target.path.startswith("/latest/meta-data/"):
            return self._metadata(target.path.removeprefix("/latest/meta-data/"), headers), ()
        if target.path == "/v1/credentials":
            expect(headers.get("authorization") == self.authorization, 401, {"code": "Unauthorized", "message": "no"})
            return self._credentials(), ()
        if target.path == "/" and method == "POST":
            return self._sts(form_of(body, environ), headers, body), (("Content-Type", "text/xml"),)
        raise Refused(404, "Not Found")

    def accepts_identity(self, subject: str) -> bool:
        """Return whether a signed GetCallerIdentity request is valid, as Google checks it."""
        request = json.loads(unquote(subject))
        headers = {header["key"].lower(): header["value"] for header in request["headers"]}
        if "Action=GetCallerIdentity" not in request["url"] or request["method"] != "POST":
            return False
        return headers.get("x-goog-cloud-target-resource") == AUDIENCE and self._is_signed(request["url"], headers, b"")

    def _metadata(self, path: str, headers: dict[str, str]) -> Any:
        expect(headers.get("x-aws-ec2-metadata-token") in self.sessions, 401, "Unauthorized")
        if path == "placement/region":
            return "eu-west-1"
        if path == "placement/availability-zone":
            return "eu-west-1b"
        if path in ("iam/security-credentials/", "iam/security-credentials"):
            expect(self.role_name, 404, "Not Found")
            return self.role_name
        expect(path == f"iam/security-credentials/{self.role_name}", 404, "Not Found")
        return {"Code": "Success", "LastUpdated": moment(0), "Type": "AWS-HMAC", **self._credentials()}

    def _credentials(self, session: str = "Token") -> dict[str, str]:
        ident = self.issue()
        key = self.keys[ident] = (ident, f"secret/{ident}+", f"session/{ident}==")
        return {"AccessKeyId": ident, "SecretAccessKey": key[1], session: key[2], "Expiration": moment(self.lifetime_s)}

    def _sts(self, form: dict[str, str], headers: dict[str, str], body: bytes) -> str:
        action = form.get("Action", "")
        expect(form.get("Version") == "2011-06-15" and form.get("RoleSessionName"), 400, _error("InvalidAction"))
        if action == "AssumeRoleWithWebIdentity":
            expect("authorization" not in headers and form.get("RoleArn") == ROLE, 403, _error("AccessDenied"))
            expect(form.get("WebIdentityToken") in self.tokens, 400, _error("ExpiredTokenException"))
        else:
            expect(action == "AssumeRole" and form.get("RoleArn") == OTHER_ROLE, 403, _error("AccessDenied"))
            expect(form.get("ExternalId") == "ext-1", 403, _error("AccessDenied"))
            signed = {**headers, "content-type": "application/x-www-form-urlencoded; charset=utf-8"}
            expect(self._is_signed(f"{self.address}/", signed, body), 403, _error("SignatureDoesNotMatch"))
        fields = "".join(f"<{name}>{text}</{name}>" for name, text in self._credentials("SessionToken").items())
        return (
            f'<{action}Response xmlns="{STS_NAMESPACE}"><{action}Result><Credentials>{fields}</Credentials>'
            f"</{action}Result><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></{action}Response>"
        )

    def _is_signed(self, url: str, headers: dict[str, str], body: bytes) -> bool:
        """Return whether botocore computes the same signature with the key that the request names."""
        authorization = headers.get("authorization", "")
        names = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        ident, _, region, service, _ = authorization.partition("Credential=")[2].partition(",")[0].split("/")
        if ident not in self.keys or service != "sts":
            return False
        request = published.AWSRequest("POST", url, {name: headers[name] for name in names}, body)
        request.context["timestamp"] = headers["x-amz-date"]
        signer = published.SigV4Auth(published.Credentials(*self.keys[ident]), service, region)
        canonical = signer.canonical_request(request)
        return authorization.endswith(
            f"Signature={signer.signature(signer.string_to_sign(request, canonical), request)}"
        )


def moment(seconds: float) -> str:
    """Return the time in that many seconds, as AWS and Google write it."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _error(code: str) -> str:
    inner = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>of secret web-1</Message></Error>"
    return f'<ErrorResponse xmlns="{STS_NAMESPACE}">{inner}<RequestId>r</RequestId></ErrorResponse>'
