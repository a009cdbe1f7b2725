"""The policy on versions and deprecation as the API description and its page publish it; docs/versioning.md has the
same with its reasons, and a test compares them."""

ANCHOR = "versions"  # of the policy within the page
ADDRESS = f"/docs#{ANCHOR}"

POLICY: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Versions",
        (
            "The model API is versioned by its path: `/v1`, and `/v1/ai`, `/v3/ai`, `/v4/ai` for the SDK-compatible "
            "surface. A change that breaks callers comes under a new path; the old one goes on.",
            "Breaking are: removing an operation, a member of an answer or a value of an enumeration that callers "
            "send; a new required member of a request; another type or meaning of a member; another status or `code` "
            "for the same condition.",
            "Not breaking, so be ready for them: new operations, new optional members of requests, new members of "
            "answers and of `details`, new headers, new values of enumerations in answers, new error codes for "
            "conditions that were not distinguished, another order of members, longer ids.",
        ),
    ),
    (
        "Deprecation",
        (
            "Deprecated: from its day on every answer of the operation carries `Deprecation: @<unix time>` (RFC 9745) "
            'and a `Link` with `rel="deprecation"` to what to use instead. It works as before.',
            "Scheduled: once its end is decided, answers carry `Sunset: <date>` (RFC 8594), at least six months ahead.",
            "Gone: from that day on it answers 410 with the code `gone`, for at least another six months.",
        ),
    ),
    (
        "Models",
        (
            "Models end on their vendor's dates. They stay in the model list with `deprecated_at` and "
            "`deactivated_at`; a deactivated one is a 400 with the code `model_deactivated`.",
        ),
    ),
)


def as_markdown() -> str:
    """The policy as the description of the document has it."""
    return "\n\n".join(f"## {title}\n\n" + "\n".join(f"* {rule}" for rule in rules) for title, rules in POLICY)
