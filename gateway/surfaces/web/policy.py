"""The policy on versions and deprecation as the API description and its page publish it; docs/versioning.md has the
same with its reasons, and a test compares them."""

ANCHOR = "versions"  # anchor of the policy within the page
ADDRESS = f"/docs#{ANCHOR}"

POLICY: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Versions",
        (
            "The model API is versioned by its path: `/v1`, and `/v1/ai`, `/v3/ai`, `/v4/ai` for the SDK-compatible "
            "surface. A change that breaks callers comes under a new path; the old path keeps working.",
            "Breaking changes are: removing an operation, a member of a response or a value of an enumeration that "
            "callers send; requiring a new member of a request; changing the type or meaning of a member; changing the "
            "status or `code` of a condition.",
            "These changes are not breaking, and clients must accept them: new operations, new optional members of "
            "requests, new members of responses and of `details`, new headers, new values of enumerations in "
            "responses, new error codes for conditions that were not distinguished, a different order of members, "
            "longer ids.",
        ),
    ),
    (
        "Deprecation",
        (
            "Deprecated: from the deprecation date every response of the operation carries "
            '`Deprecation: @<unix time>` (RFC 9745) and a `Link` with `rel="deprecation"` to its replacement. It works '
            "as before.",
            "Scheduled: when a removal date is set, responses carry `Sunset: <date>` (RFC 8594), at least six months "
            "ahead.",
            "Removed: from that date the operation returns 410 with the code `gone`, for at least another six months.",
        ),
    ),
    (
        "Models",
        (
            "Vendors retire models on their own dates. Retired models stay in the model list with `deprecated_at` and "
            "`deactivated_at`; a request for a deactivated model returns 400 with the code `model_deactivated`.",
        ),
    ),
)


def as_markdown() -> str:
    """Return the policy as Markdown for the API description."""
    return "\n\n".join(f"## {title}\n\n" + "\n".join(f"* {rule}" for rule in rules) for title, rules in POLICY)
