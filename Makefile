# Shortcuts for those whose fingers type make; the scripts are the real thing.
.PHONY: check unit format quickstart

check:
	./check

unit:
	./check unit

format:
	uv run ruff format .
	uv run ruff check --fix .

quickstart:
	./quickstart
