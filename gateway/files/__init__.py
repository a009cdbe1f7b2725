"""Files that callers store and name in later requests.

`file_contents` keeps the bytes encrypted in a folder, `file_rows` has their names and owners, and surfaces use
`project_files`.
"""
