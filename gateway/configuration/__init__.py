"""The building blocks of the settings.

`value_parsing` converts and checks values; `names` suggests known names for misspelled ones; `secrets` reads secrets
from variables or files; `file` reads gateway.toml; `setting_sources` merges all sources; `effective_values` shows
where each value comes from; `document` writes the reference.

Except for `settings`, the modules do not know the sections of the settings: they are passed in. Rejected alternatives:
a schema library (the dataclasses of `settings` are the schema) and settings in YAML.
"""
