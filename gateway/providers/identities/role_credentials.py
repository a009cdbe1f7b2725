"""Temporary credentials of a role: by web identity, of a container or of an EC2 instance.

Wire facts: AWS SDKs and Tools Reference Guide, "Assume role credential provider", "Container credential provider",
"IMDS credential provider"; AWS STS API Reference, AssumeRoleWithWebIdentity, AssumeRole; EC2 User Guide, "Use IMDSv2".
"""

import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from gateway.errors import IdentityFailed
from gateway.providers.bedrock.signing import AccessKey, CredentialScope, sign
from gateway.providers.identities.upstream_identity import (
    IdentityCalls,
    IssuedToken,
    read_token_file,
    refused,
    text_in,
    text_of,
)
from gateway.providers.protocol import UpstreamReply
from gateway.runtime.lazy_import import LazyImport
from gateway.transport.upstream_responses import Answer

ElementTree = LazyImport("xml.etree.ElementTree")

WEB_TOKEN_FILE = "AWS_WEB_IDENTITY_TOKEN_FILE"
STS = "AWS Security Token Service"
VERSION = "2011-06-15"
NAMESPACE = f"{{https://sts.amazonaws.com/doc/{VERSION}/}}"
DEFAULT_REGION = "us-east-1"
SESSION_NAME = "llmgateway"
CONTAINER = "AWS container credentials service"
CONTAINER_ADDRESS = "http://169.254.170.2"
CONTAINER_HOSTS = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23", "localhost")
IMDS = "EC2 instance metadata service"
IMDS_ADDRESS = "http://169.254.169.254"
TOKEN_SECONDS = "21600"
ROLE_PATH = "/latest/meta-data/iam/security-credentials/"
REGION_PATH = "/latest/meta-data/placement/region"


class RoleCredentials:
    """The chain of a process without stored keys. `environment` has the variables that AWS sets for the process."""

    def __init__(self, calls: IdentityCalls, environment: Mapping[str, str]) -> None:
        self._calls = calls
        self._environment = environment

    def fetch_key(self) -> AccessKey:
        """Return temporary credentials. IdentityFailed."""
        return self.fetch("")[0]

    def fetch(self, region: str) -> tuple[AccessKey, float, str]:
        """Return temporary credentials, their lifetime in seconds, and their source. IdentityFailed."""
        read = self._environment.get
        if path := read(WEB_TOKEN_FILE, ""):
            return self._by_web_identity(read_token_file(WEB_TOKEN_FILE, path), region)
        if read("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "") or read("AWS_CONTAINER_CREDENTIALS_FULL_URI", ""):
            return self._of_container()
        return self._of_instance()

    def assume(self, key: AccessKey, region: str, role: str, external_id: str = "") -> tuple[AccessKey, float, str]:
        """Return credentials of another role, which the holder of `key` assumes. IdentityFailed."""
        form = {"RoleArn": role, "RoleSessionName": self._session_name()}
        if external_id:
            form["ExternalId"] = external_id
        return *self._call_sts("AssumeRole", form, region, key), "assumed role"

    def find_region(self) -> str:
        """Return the region of the process: its variable, else that of its instance. IdentityFailed."""
        chosen = self._environment.get("AWS_REGION", "") or self._environment.get("AWS_DEFAULT_REGION", "")
        if chosen:
            return chosen
        answer = self._calls.call(IMDS, "GET", self._instance_url(REGION_PATH), self._instance_headers())
        return text_of(IMDS, answer, "region")

    def _by_web_identity(self, token: str, region: str) -> tuple[AccessKey, float, str]:
        role = self._environment.get("AWS_ROLE_ARN", "")
        if not role:
            raise IdentityFailed(f"AWS_ROLE_ARN is needed with {WEB_TOKEN_FILE}.")
        form = {"RoleArn": role, "RoleSessionName": self._session_name(), "WebIdentityToken": token}
        return *self._call_sts("AssumeRoleWithWebIdentity", form, region, None), "web identity"

    def _call_sts(
        self, action: str, form: Mapping[str, str], region: str, key: AccessKey | None
    ) -> tuple[AccessKey, float]:
        """Return the credentials in the answer to an action; the call is signed with `key`, if there is one."""
        environment = self._environment
        region = environment.get("AWS_REGION", "") or environment.get("AWS_DEFAULT_REGION", "") or region
        region = region or DEFAULT_REGION
        url = f"{environment.get('AWS_ENDPOINT_URL_STS', '') or sts_address(region)}".rstrip("/") + "/"
        body = urlencode({"Action": action, "Version": VERSION, **form}).encode()
        headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
        if key is not None:
            headers = sign("POST", url, headers, body, key, CredentialScope(region, "sts", self._calls.clock.now()))
        answer = self._calls.call(STS, "POST", url, headers, body)
        values = _read_xml(answer)
        return self._read(STS, values, values.get("SessionToken"))

    def _of_container(self) -> tuple[AccessKey, float, str]:
        read = self._environment.get
        relative = read("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "")
        url = f"{CONTAINER_ADDRESS}{relative}" if relative else read("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
        _check_container_url(url)
        headers: dict[str, str] = {}
        if path := read("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", ""):
            headers["authorization"] = read_token_file("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path)
        elif token := read("AWS_CONTAINER_AUTHORIZATION_TOKEN", ""):
            headers["authorization"] = token
        values = self._calls.fetch(CONTAINER, "GET", url, headers)
        return *self._read(CONTAINER, values, values.get("Token")), CONTAINER

    def _of_instance(self) -> tuple[AccessKey, float, str]:
        headers = self._instance_headers()
        answer = self._calls.call(IMDS, "GET", self._instance_url(ROLE_PATH), headers)
        if answer.status == 404:
            raise IdentityFailed("The EC2 instance has no role.")
        role = text_of(IMDS, answer, "role")
        url = self._instance_url(ROLE_PATH + quote(role, safe="+=,.@_-"))
        values = self._calls.fetch(IMDS, "GET", url, headers)
        if values.get("Code", "Success") != "Success":
            raise refused(IMDS, 200, str(values["Code"]))
        return *self._read(IMDS, values, values.get("Token")), IMDS

    def _instance_headers(self) -> dict[str, str]:
        """Return the header with a session token of IMDSv2; the first version, without one, is never used."""
        if self._environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            raise IdentityFailed("AWS_EC2_METADATA_DISABLED forbids the instance role, and no other source is set.")
        url = self._instance_url("/latest/api/token")
        answer = self._calls.call(IMDS, "PUT", url, {"x-aws-ec2-metadata-token-ttl-seconds": TOKEN_SECONDS})
        return {"x-aws-ec2-metadata-token": text_of(IMDS, answer, "token")}

    def _instance_url(self, path: str) -> str:
        base = self._environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "") or IMDS_ADDRESS
        return base.rstrip("/") + path

    def _session_name(self) -> str:
        return self._environment.get("AWS_ROLE_SESSION_NAME", "") or SESSION_NAME

    def _read(self, place: str, values: Mapping[str, Any], session: object) -> tuple[AccessKey, float]:
        names = ("AccessKeyId", "SecretAccessKey")
        ident, secret = (text_in(place, values, name) for name in names)
        token = text_in(place, {"Token": session}, "Token")
        return AccessKey(ident, secret, token), self._calls.seconds_until(place, values.get("Expiration"))


def sts_address(region: str) -> str:
    """Return the address of STS in a region. The regions in China have a domain of their own."""
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://sts.{region}.{domain}"


def _check_container_url(url: str) -> None:
    """Raise IdentityFailed unless the token may be sent there: over https, to this host, or to AWS's own addresses."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or host in CONTAINER_HOSTS or _is_loopback(host):
        return
    raise IdentityFailed("AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, this host, or an address of ECS or EKS.")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_xml(answer: Answer) -> dict[str, str]:
    """Return the texts below <Credentials> in an answer of STS."""
    try:
        root = ElementTree.fromstring(answer.body)
    except ElementTree.ParseError:
        root = ElementTree.Element("none")
    if answer.status != 200:
        raise refused(STS, answer.status, root.findtext(f".//{NAMESPACE}Code") or root.findtext(".//Code") or "")
    return {
        child.tag.removeprefix(NAMESPACE): child.text or "" for child in root.iterfind(f".//{NAMESPACE}Credentials/*")
    }


# Temporary credentials for Amazon Bedrock, from the role of the gateway's host, and of another role if one is set.

ERROR_HEADER = "x-amzn-errortype"
# Errors of a key that AWS no longer knows, or that has expired.
REJECTED = ("ExpiredToken", "UnrecognizedClient", "InvalidClientTokenId")


class AwsIdentity:
    """The token is a key pair with its session token, in the form that the protocol signs with."""

    settings: tuple[str, ...] = ("region", "role_arn", "external_id")
    auth = ""

    def __init__(self, calls: IdentityCalls, environment: Mapping[str, str]) -> None:
        self._roles = RoleCredentials(calls, environment)

    def fetch(self, settings: Mapping[str, str]) -> IssuedToken:
        """Return credentials of the host's role, or of the role that it assumes. IdentityFailed."""
        region = settings.get("region", "")
        key, lifetime_s, source = self._roles.fetch(region)
        if role := settings.get("role_arn", ""):
            key, lifetime_s, assumed = self._roles.assume(key, region, role, settings.get("external_id", ""))
            source = f"{assumed}, by {source}"
        return IssuedToken(f"{key.ident}:{key.secret}:{key.session}", lifetime_s, source)

    def is_rejected(self, reply: UpstreamReply) -> bool:
        if reply.status not in (401, 403):
            return False
        return reply.status == 401 or reply.headers.get(ERROR_HEADER, "").startswith(REJECTED)
