"""What `settings` is made of: values read and checked, names that are nearly right, and the one file of an operator.

`values` turns what was written into what a field means; `names` knows which names there are, and which one was meant;
`secrets` come from variables or files; `file` reads gateway.toml; `reading` lays all of it over each other; `explain`
tells where each value comes from; `document` writes the reference.

May not know the sections of the settings: they are handed in. Decided against: a schema library (the dataclasses of
`settings` are the schema) and settings in YAML.
"""
