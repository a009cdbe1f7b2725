"""Hides secrets in text that is logged, stored or shown: tokens that the gateway issued, and passwords in addresses."""

import re
from typing import Final

MASK: Final = "********"
# The prefixes of all secrets that the gateway issues; `gateway/ids.py` makes no token with another one.
TOKEN_PREFIXES = (
    "llmgtwy_",  # keys
    "llmgcus_",  # keys of customers
    "llmgsa_",  # service accounts
    "llmgses_",  # sessions
    "llmgat_",  # access tokens
    "llmgrt_",  # refresh tokens
    "llmgac_",  # authorization codes
    "llmgcs_",  # secrets of OAuth clients
    "llmgscim_",  # tokens of SCIM
    "llmginv_",  # invitations
    "llmgdev_",  # device codes
    "ek_",  # client secrets of realtime sessions
)
MARKS = ("llmg", "ek_", "ek%5")
# Five characters of a token are shown as its mask, so a longer beginning is hidden. `ek_` also ends plain words.
ISSUED_TOKEN = re.compile(
    rf"({'|'.join(prefix[:-1] for prefix in TOKEN_PREFIXES if prefix != 'ek_')})(?:_|%5[Ff])[\w-]{{6,}}"
    r"|(?<![A-Za-z0-9])(ek)(?:_|%5[Ff])[\w-]{20,}"
)
HIDDEN = "[hidden]"
ADDRESS_END = re.compile(r"[\s\"]")
AUTHORITY_END = re.compile(r"[/?#]")
USER = re.compile(r"[\w.+-]{0,64}", re.ASCII)
HOST = re.compile(r"(?:[\w.%-]*|\[[0-9A-Fa-f:.%]*\])(?::[0-9]{0,5})?", re.ASCII)
SECRET_OPTION = re.compile(r"pass|secret|token|key|credential|signature", re.IGNORECASE)
SECRET_OPTIONS = frozenset(("password", "sslpassword", "sentinel_password"))
# Options of a configured address that are shown with their values.
PLAIN_OPTIONS = frozenset(
    (
        *("sslmode", "sslrootcert", "sslcert", "sslkey", "application_name", "connect_timeout", "target_session_attrs"),
        *("host", "hostaddr", "port", "dbname", "user", "channel_binding", "keepalives", "tcp_user_timeout"),
        *("db", "protocol", "ssl_cert_reqs", "ssl_ca_certs", "socket_timeout", "sentinel_username", "api-version"),
    )
)


def hide_tokens(text: str) -> str:
    """Return the text with every token that the gateway could have issued replaced by its prefix."""
    if not any(mark in text for mark in MARKS):
        return text
    return ISSUED_TOKEN.sub(_hide_token, text)


def hide_secrets(text: str) -> str:
    """Return a text of the log without tokens that the gateway issued and without passwords in addresses."""
    text = hide_tokens(text)
    if "://" not in text:
        return text
    pieces = text.split("://")
    return "://".join([pieces[0], *map(_hide_in_piece, pieces[1:])])


def mask_address(text: str) -> str:
    """Return a configured address with everything masked that may be a secret, also if it is not a valid address."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _mask_loose(text)
    boundary = AUTHORITY_END.search(rest)
    authority = rest[: boundary.start()] if boundary else rest
    path = rest[len(authority) :]
    userinfo, at, hosts = authority.rpartition("@")
    if "@" in path or not all(map(HOST.fullmatch, hosts.split(","))):
        return f"{scheme}://{MASK}"  # any part may belong to the password
    place, mark, query = path.partition("?")
    place, fragment, _ = place.partition("#")
    user = f"{_mask_user(userinfo, scheme)}@" if at else ""
    options = f"?{'&'.join(map(_mask_option, query.split('&')))}" if mark else ""
    return f"{scheme}://{user}{hosts}{place}{f'#{MASK}' if fragment else ''}{options}"


def _hide_token(match: re.Match[str]) -> str:
    return f"{match[1] or match[2]}_{HIDDEN}"


def _hide_in_piece(piece: str) -> str:
    """Hide the password in a text that begins after the scheme of an address."""
    end = ADDRESS_END.search(piece)
    address = piece[: end.start()] if end else piece
    rest = piece[len(address) :]
    boundary = AUTHORITY_END.search(address)
    authority = address[: boundary.start()] if boundary else address
    _, colon, port = authority.rpartition(":")
    userinfo, at, place = address.rpartition("@")
    # Without an @ in the authority it may be behind a slash of the password, but also in a path, as of a model.
    if at and ("@" in authority or (colon and not port.isdigit() and "]" not in port)):
        address = f"{_mask_user(userinfo, 'http')}@{place}"
    place, mark, query = address.partition("?")
    if mark and SECRET_OPTION.search(query):
        pairs = (pair.partition("=") for pair in query.split("&"))
        query = "&".join(
            f"{name}={MASK}" if equals and SECRET_OPTION.search(name) else name + equals + value
            for name, equals, value in pairs
        )
    return place + mark + query + rest


def _mask_user(userinfo: str, scheme: str) -> str:
    """Return a user name without the password. A name alone may be a token, except where that has no use."""
    name, colon, _ = userinfo.partition(":")
    if not USER.fullmatch(name):
        return MASK
    if colon:
        return f"{name}:{MASK}"
    if scheme.startswith("http"):
        return MASK
    return name


def _mask_option(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    if name in PLAIN_OPTIONS:
        return pair
    if equals and name in SECRET_OPTIONS:
        return f"{name}={MASK}"
    return MASK


def _mask_loose(text: str) -> str:
    """Mask an address without a scheme (user:password@host), or the words of a connection string (password=…)."""
    if "@" in text and ":" in text.rpartition("@")[0]:
        return f"{MASK}@{text.rpartition('@')[2]}"
    if SECRET_OPTION.search(text) and "=" in text:
        return MASK
    return text
