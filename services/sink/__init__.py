"""The last stage: scored rollouts and failures become files.

Read `step` first (records to lines), then `single_file` (one run, one pair of files) or `directory` (many replicas).
"""
