"""The modes of projects in words: which provider keys their requests use."""

# Value of `mode` → its description.
PROJECT_MODES = {
    "credits": "The gateway's keys, paid with credits",
    "api-keys": "Own keys only",
    "hybrid": "Own keys first, then the gateway's",
}
