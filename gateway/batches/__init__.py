"""Batches: a file of requests that the gateway sends itself, in spare capacity, and whose results are files.

A batch is a job (`batch_table`). A worker that claims it checks every line and holds the bound of all of them
(`line_checks`), then sends the lines as ordinary requests (`batch_runs`). The answer of a line and its usage row are
one entry of the journal (`line_results`), so that a crash loses no line and bills none twice. `result_files` writes the
files at the end, and `project_batches` is what surfaces use. What a line is in a dialect, only the surfaces know
(`line_port`).
"""
