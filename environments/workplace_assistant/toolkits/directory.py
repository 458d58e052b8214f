"""The address directory."""

from __future__ import annotations

from typing import Annotated, Any

from environments.workplace_assistant.searching import cell_filter
from environments.workplace_assistant.tooling import Argument, Toolkit, offered


class CompanyDirectoryTool(Toolkit):
    prefix = "company_directory_"

    @offered()
    def find_email_address(self, name: Annotated[Any, Argument("A name, or part of one")] = "") -> Any:
        """Find the addresses of colleagues whose name contains a text, whatever its case."""
        if not name:
            return "Name not provided."
        fits = cell_filter(name)
        return [address for address in self.databases.base.directory if fits(address)]
