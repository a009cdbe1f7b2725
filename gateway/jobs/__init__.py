"""Jobs: work that a caller requests in one call and that ends later, on any worker.

A job is a row with a state, a time at which it is due, and a hold on every budget that may pay for it. Each kind of job
has its own table, which `job_rows` reads and changes. The worker that changes a due row first has it until that
time; a process may therefore be killed at any point. `job_endings` writes state, usage row, spending and callback in
one transaction, `rounds` lets the owners of jobs take turns, `callbacks` delivers webhooks about ends.
"""
