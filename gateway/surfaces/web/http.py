"""Requests, responses, operations and surfaces as handlers see them, independent of server and framework."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl

from msgspec import Struct, field

from gateway import ids
from gateway.errors import GatewayError, InvalidRequest
from gateway.runtime.large_files import StoredFile

if TYPE_CHECKING:
    from gateway.billing.context import RequestContext
    from gateway.callers.authentication import Caller
    from gateway.engine.payload_collection import Payload
    from gateway.worker.services import Services

LABEL_LENGTH = 64
MAX_ARGUMENTS = 1000
# Headers that may have the API key instead of Authorization, in the order in which they are read.
KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")
VARY_BY_KEY = ", ".join(("Authorization", *KEY_HEADERS))  # a Vary header: answers differ by caller
SAFE_METHODS = frozenset({"GET", "HEAD"})  # of requests that change nothing


class Sender(Struct, eq=False):
    """The sender of an admitted request, cached for the next request with the same headers. `caller` is absent before a
    request was admitted, and where headers carry more than the identity of the sender."""

    caller: "Caller | None" = None
    source: str = ""


class Inbound(Struct, eq=False):
    """A request as received.

    `headers` have lower-case names, `query` is undecoded, `peer` is the caller's address, `base_url` is scheme, host
    and mount point as the caller sees them, `params` are the variables of the route. `request_id` is 32 hex digits that
    the gateway creates; an id from the caller is a label only. `sender` is cached by the server together with
    `headers`, None where it caches nothing. `payload` is set when the caller's project retains payloads, `caller` after
    authentication, `context` after admission. The body of a multipart form is in `upload` instead of `body`; `files`
    are stored files that are deleted with the request. `channel` is the connection, for a request that asks for another
    protocol (server/upgrades.py: CallerChannel; surfaces/sock_upgrades.py: SockChannel); None where the server does not
    expose it. `prepared` returns the context of a request that the gateway itself sends, for an operation and a
    surface, instead of the authentication. `answer_headers` are those that a page sends whatever it answers.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    query: str = ""
    peer: str = ""
    base_url: str = ""
    params: dict[str, str] = field(default_factory=dict)
    request_id: str = field(default_factory=ids.new_hex)
    sender: Sender | None = None
    payload: "Payload | None" = None
    caller: "Caller | None" = None
    context: "RequestContext | None" = None
    upload: StoredFile | None = None
    files: tuple[StoredFile, ...] = ()
    channel: Any = None
    prepared: Callable[[str, str], "RequestContext"] | None = None
    answer_headers: tuple[tuple[str, str], ...] = ()

    @property
    def shown_id(self) -> str:
        """Return the id that the caller sees: their own x-request-id (at most 64 characters), else the gateway's."""
        return self.header("x-request-id")[:LABEL_LENGTH] or self.request_id

    def header(self, name: str) -> str:
        """The header `name` (lower case), stripped; "" when absent."""
        return self.headers.get(name, "").strip()

    def new_file(self, folder: str) -> StoredFile:
        """Return an empty file of this request, stored in `folder` once it is large. The request owns it before
        anything is written, so that it is deleted after any later failure."""
        file = StoredFile(folder)
        self.files += (file,)
        return file

    def close_files(self) -> None:
        """Delete the stored files at the end of the request."""
        if self.upload is not None:
            self.upload.close()
        for file in self.files:
            file.close()

    def arguments(self) -> dict[str, str]:
        """Return the query parameters; the last value of a repeated one. Raises InvalidRequest for too many."""
        try:
            return dict(parse_qsl(self.query, keep_blank_values=True, max_num_fields=MAX_ARGUMENTS))
        except ValueError:
            raise InvalidRequest(f"The query has more than {MAX_ARGUMENTS} parameters.") from None


class Outbound(Struct, eq=False):
    """A response: all of its bytes, or an iterator of items that are sent separately (its close() is always called).
    `failure` is an error reported within a successful status, so that the request counts as refused or failed.
    `takeover` replaces the response: it serves the request's channel and returns when the connection has ended."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes | Iterator[bytes] = b""
    failure: GatewayError | None = None
    takeover: Callable[[], object] | None = None


Handler = Callable[["Services", Inbound], Outbound]


class ErrorFormat(Struct, frozen=True):
    """The error format of a surface: `body` writes an (error, request id), `schema` is its JSON schema, and `id_header`
    is the header beside x-request-id in which clients of the format read the request's id ("": none). `frame` writes an
    error within a stream; None: an event named error with that body. `convert_error` converts an error raised before
    the handler ran, with its headers; `about` returns the format for one request, where errors repeat a part of it.
    `media` is the media type of the body."""

    name: str
    body: Callable[[GatewayError, str], Mapping[str, Any]]
    schema: dict[str, Any]
    id_header: str = ""
    frame: Callable[[GatewayError, str], bytes] | None = None
    convert_error: Callable[[GatewayError, Inbound], GatewayError] | None = None
    about: Callable[[Inbound], "ErrorFormat"] | None = None
    media: str = "application/json"

    def of(self, inbound: Inbound) -> "ErrorFormat":
        """Return the format of an error in response to `inbound`."""
        if self.about is None:
            return self
        return self.about(inbound)


class HeaderParameter(Struct, frozen=True):
    """A request header, for the API description; `words` are its values (none: any text), `example` is one of them."""

    name: str
    description: str
    words: tuple[str, ...] = ()
    required: bool = False
    example: str = ""


Access = Literal["session", "key", "optional", "visitor", "operator", "provisioning", "none"]


class About(Struct, frozen=True):
    """The API description of an operation, besides its row in the table. `request` and `query` are the classes that
    validate body and parameters (marshmallow schemas, typed dictionaries or msgspec structs; for a body also a JSON
    schema), `headers` the further request headers, `answer` the type or JSON schema of the successful response; None:
    not described further. `success` are its statuses, `errors` the others, besides openapi.KEY_ERRORS of operations
    with an API key. `access`: "session" (management), "key" (API key), "optional" (works without), "visitor" (a session
    or none), "operator" (the token of a setting), "provisioning" (a SCIM token) or "none". `form` is the class or JSON
    schema of a form, where one is accepted, and `form_media` its media type. `also`: other media types of the
    successful response; `events`: the type or JSON schema of the data of each event, where the response can be
    streamed. `alike`: failures that respond in the form of a success. `example` is a JSON body that works as it is;
    None: it is made from the schema."""

    summary: str
    tag: str = ""
    request: type | dict[str, Any] | None = None
    query: type | None = None
    answer: Any = None
    success: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = ()
    access: Access = "key"
    media: str = "application/json"
    form: type | dict[str, Any] | None = None
    form_media: str = "multipart/form-data"
    headers: tuple[HeaderParameter, ...] = ()
    also: tuple[str, ...] = ()
    events: Any = None
    alike: tuple[int, ...] = ()
    example: dict[str, Any] | None = None


class Deprecated(Struct, frozen=True):
    """A deprecated operation: the day of its deprecation, the day of its removal ("" = not decided), both "YYYY-MM-DD",
    and the URL of its replacement."""

    since: str
    sunset: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of a surface's table.

    `path` may hold `<name>` variables, passed in Inbound.params. `hot` operations are also served by the express lane
    (their path has no variable). `errors` is the error format, None: that of the surface. `body` is the required body
    of a POST: "json", "form" (multipart or JSON), "any" or "none". `paid` operations spend money and pass the
    admission. `upgrades`: the operation serves requests that ask for a WebSocket. `about` is for the API description;
    `deprecated` adds the headers of docs/versioning.md to every response. `chosen`: another surface has an operation
    at the same path, and this one serves the requests for which it returns true.
    """

    method: str
    path: str
    handler: Handler
    errors: ErrorFormat | None = None
    body: Literal["json", "form", "any", "none"] = "none"
    hot: bool = False
    paid: bool = False
    upgrades: bool = False
    about: About | None = None
    deprecated: Deprecated | None = None
    chosen: Callable[[Inbound], bool] | None = None


NO_HINTS: Mapping[str, str] = MappingProxyType({})


class Surface:
    """One way to call the gateway: a table of operations with one error format. Blueprints, express lane, description,
    and the format of errors that reach no operation (an unknown path, a wrong method) below its `prefixes` are derived
    from it. `described`: programs call it, so it is in the API description. `absent` are paths of the original API that
    are not served but look like an operation with a variable; all methods return 404. `instead`: for paths of the
    original API that are not served, and all below them, what to use instead; a path such as ":predict" is a method of
    any resource. `aliases`: other paths at which the clients of a vendor expect an operation, or all operations below
    them, with the path that serves them."""

    def __init__(
        self,
        name: str,
        errors: ErrorFormat,
        operations: tuple[Operation, ...],
        prefixes: tuple[str, ...] = (),
        described: bool = True,
        absent: tuple[str, ...] = (),
        instead: Mapping[str, str] = NO_HINTS,
        aliases: Mapping[str, str] = NO_HINTS,
    ) -> None:
        self.name = name
        self.errors = errors
        self.prefixes = prefixes
        self.described = described
        self.absent = frozenset(absent)
        self.instead = instead
        self.aliases = aliases
        self.operations = tuple(
            operation if operation.errors else replace(operation, errors=errors) for operation in operations
        )

    def depth(self, path: str) -> int:
        """Return the length of the prefix that `path` lies below; 0 when there is none."""
        return max(
            (len(prefix) for prefix in self.prefixes if path == prefix or path.startswith(f"{prefix}/")), default=0
        )
