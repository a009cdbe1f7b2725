"""Files that callers store and name in later requests.

`file_contents` keeps the bytes encrypted in a folder, `file_rows` who owns them, `project_files` is what surfaces use.
"""
