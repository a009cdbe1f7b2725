"""The description of the API, made from tables and schemas, with examples and code samples."""
