"""What a manifest says of data that an environment needs and does not bring."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=200)]
"""A name that is one file in one folder, whatever the system."""


class HubData(BaseModel):
    """Files of a data set on the Hugging Face Hub, for `rollstream environment fetch`.

    They are found by name in any folder of the data set, and put side by side into one folder. `rows` are files of tasks,
    fetched where they are there. `max_bytes` bounds all of them together.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    repo: str
    revision: str = "main"
    files: tuple[FileName, ...] = Field(min_length=1)
    rows: tuple[FileName, ...] = ()
    max_bytes: int = Field(default=1 << 30, gt=0)
