"""Following instructions that a program can check: length, format, keywords, casing, copying, positions."""
