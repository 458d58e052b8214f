"""Environments and their agents over HTTP, as the reference serves them (platform.md H). Needs the extra `http`."""
