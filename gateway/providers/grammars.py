"""The subset of JSON Schema that each upstream accepts, as data for the rewriter in json_schema_subset.py."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

# Keywords without an effect on validation: dropped without a warning where a grammar lacks them.
ANNOTATIONS = frozenset(
    (
        "$schema",
        "$id",
        "id",
        "$anchor",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "example",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "externalDocs",
        "xml",
        "contentMediaType",
        "contentEncoding",
        "propertyOrdering",
        "strict",
    )
)


class Grammar(Struct, frozen=True, eq=False):
    """The subset of JSON Schema that an upstream accepts.

    `words` None: every keyword. `refs`: references to $defs are kept, otherwise they are expanded. `formats`: the
    formats allowed for each type (None: all). `type_lists`: a type may be a list. `upper_types`: types in capitals.
    `typed`: every node has one type and only keywords of that type. `text_enums`: an enum lists only non-empty strings.
    `lone_unions`: anyOf has no sibling keywords; they move into its branches. `object_root`: the root is an object,
    without combiners. `root_words`: keywords allowed at the root. `declared`: only declared properties can be required.
    `item_counts`: allowed values of minItems.

    `closed` (only declared properties) and `all_required` (optional properties become nullable) narrow the schema
    because the upstream demands it. Otherwise a rewritten schema accepts every value that the original accepts.
    """

    name: str
    words: frozenset[str] | None = None
    refs: bool = False
    formats: Mapping[str, frozenset[str]] | None = None
    type_lists: bool = True
    upper_types: bool = False
    typed: bool = False
    text_enums: bool = False
    lone_unions: bool = False
    object_root: bool = True
    root_words: frozenset[str] | None = None
    declared: bool = False
    item_counts: frozenset[int] | None = None
    closed: bool = False
    all_required: bool = False

    def allows(self, word: str) -> bool:
        return self.words is None or word in self.words


def _formats(**by_type: str) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({kind: frozenset(names.split()) for kind, names in by_type.items()})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Gemini API reference, Schema: a part of OpenAPI 3.0. The formats are those of its error message ("only 'enum' and
# 'date-time' are supported for STRING type").
GOOGLE = Grammar(
    "google",
    words=_words(
        "type format title description nullable enum items minItems maxItems properties required minProperties"
        " maxProperties propertyOrdering minimum maximum minLength maxLength pattern default example anyOf"
    ),
    formats=_formats(string="enum date-time", number="float double", integer="int32 int64"),
    type_lists=False,
    upper_types=True,
    typed=True,
    text_enums=True,
    lone_unions=True,
    declared=True,
)
# Gemini API reference, GenerationConfig.responseJsonSchema: its list of keywords; oneOf has the meaning of anyOf there.
GOOGLE_JSON = Grammar(
    "google-json",
    words=_words(
        "type format title description enum items prefixItems minItems maxItems minimum maximum anyOf properties"
        " additionalProperties required propertyOrdering"
    ),
    declared=True,
)
# Anthropic API reference, tools: any JSON Schema (2020-12), but no combiner at the root.
ANTHROPIC = Grammar("anthropic", refs=True)
# Anthropic guide, structured outputs, JSON Schema limitations.
ANTHROPIC_OUTPUT = Grammar(
    "anthropic-output",
    words=_words(
        "type format title description default enum const anyOf items minItems properties required additionalProperties"
    ),
    formats=_formats(string="date-time time date duration email hostname uri ipv4 ipv6 uuid"),
    lone_unions=True,
    object_root=False,
    declared=True,
    item_counts=frozenset((0, 1)),
    closed=True,
)
# OpenAI guide, structured outputs, supported schemas.
OPENAI_STRICT = Grammar(
    "openai-strict",
    words=_words(
        "type format title description enum const anyOf items minItems maxItems properties required"
        " additionalProperties pattern multipleOf minimum maximum exclusiveMinimum exclusiveMaximum"
    ),
    formats=_formats(string="date-time time date duration email hostname ipv4 ipv6 uuid"),
    lone_unions=True,
    declared=True,
    closed=True,
    all_required=True,
)
# Amazon Bedrock user guide, tool use of Nova: the root has type, properties and required alone.
BEDROCK = Grammar("bedrock", root_words=_words("type properties required description"))
MISTRAL = Grammar("mistral", refs=True)
# Cohere guide, structured outputs, unsupported schema features: allOf, oneOf, not, ranges, lengths, most formats.
COHERE = Grammar(
    "cohere",
    words=_words(
        "type format title description default enum const anyOf items properties required additionalProperties pattern"
    ),
    formats=_formats(string="date-time uuid date time"),
    declared=True,
)
PLAIN_GRAMMAR = Grammar("plain", refs=True, object_root=False)

GRAMMARS: Mapping[str, Grammar] = MappingProxyType(
    {grammar.name: grammar for grammar in tuple(globals().values()) if isinstance(grammar, Grammar)}
)
# The grammars for the schema of an answer, which need not be an object.
OUTPUTS: Mapping[str, Grammar] = MappingProxyType(
    {name: replace(grammar, object_root=False, root_words=None) for name, grammar in GRAMMARS.items()}
)
