"""Answers are checked for each instruction of their row: reward for following all of them, or for the share."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from environments.common.instructions import Answer, check_all, last_item_text, reward
from environments.environment import Context, Environment, Response, Reverify, Task, Verdict
from environments.instruction_following import copying, layout, wording  # noqa: F401 - they register the kinds
from environments.instruction_following.catalogue import KINDS

_LEGACY = ("instruction_id_list", "prompt", "kwargs", "grading_mode")


class Instructions(BaseModel):
    """What is asked for: kinds, and the arguments of each. `grading_mode`: `binary` or `fraction`."""

    model_config = ConfigDict(extra="allow")

    instruction_id_list: list[str]
    prompt: str
    arguments: list[dict[str, Any] | None] = Field(validation_alias=AliasChoices("kwargs"), serialization_alias="kwargs")
    grading_mode: Any = "binary"  # an unknown one is refused when it is scored


class InstructionTask(Task):
    """A row; its instructions may stand at its top level, as they did in earlier data sets."""

    id: int
    verifier_metadata: Instructions

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, row: Any) -> Any:
        """Move what earlier data sets have at the top level to where it is read; what is there already wins."""
        given = row.get("verifier_metadata", {}) if isinstance(row, dict) else None
        if not isinstance(given, dict):
            return row
        return {**row, "verifier_metadata": {**{k: row[k] for k in _LEGACY if k in row}, **given}}


class InstructionFollowing(Environment):
    """Rewards following instructions that a program can check."""

    Task = InstructionTask
    reverify = Reverify.STATELESS
    cpu_heavy = True

    def verify(self, task: InstructionTask, response: Response, state: Any, context: Context) -> Verdict:
        asked = task.verifier_metadata
        answer = Answer(last_item_text(response), context.data_dir)
        followed = check_all(KINDS, asked.instruction_id_list, asked.arguments, answer)
        fields: dict[str, Any] = {"instruction_problems": followed.problems} if followed.problems else {}
        return Verdict(
            reward(followed.each, asked.grading_mode),
            follow_all_instructions=followed.all,
            follow_instruction_list=followed.each,
            verifier_metadata=asked.model_dump(by_alias=True, exclude_unset=True),
            **fields,
        )
