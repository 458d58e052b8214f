"""Multiple-choice questions: 1.0 for the right option letter in the demanded format, else 0.0."""

from __future__ import annotations

from typing import Any, Literal

from environments.common.options import Options
from environments.environment import Config, Context, Environment, Response, Reverify, Scores, Task, Verdict
from environments.mcqa.grading import MODES, from_patterns
from environments.mcqa.patterns import PatternError

RowMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon"]
Mode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"]


class McqaTask(Task):
    """A question with its options (objects of letter to text) and the letter that is right.

    Of `template_metadata` only `output_regex` is read: a pattern, or a list of them, tried before the grading mode.
    """

    options: list[dict[str, str | None]] | None = None
    expected_answer: str | None = None
    grading_mode: RowMode = "strict_single_letter_boxed"
    template_metadata: dict[str, Any] | None = None


class McqaConfig(Config):
    """`grading_mode`, when set, beats the row's."""

    grading_mode: Mode | None = None


class Mcqa(Environment):
    """Rewards an extracted letter that equals the expected answer."""

    Task = McqaTask
    Config = McqaConfig
    reverify = Reverify.STATELESS
    metrics = Scores(answer="extracted_answer")

    def verify(self, task: McqaTask, response: Response, state: Any, context: Context) -> Verdict:
        gold = (task.expected_answer or "").strip().upper()
        try:
            answer = self._extract(task, response.flat_text().strip())
        except PatternError as e:
            return Verdict(0.0, expected_answer=gold, extracted_answer=None, extraction_error=str(e))
        right = bool(gold) and answer == gold
        return Verdict(1.0 if right else 0.0, expected_answer=gold, extracted_answer=answer)

    def _extract(self, task: McqaTask, text: str) -> str | None:
        if not text:
            return None
        options = Options.of(task.options or ())
        patterns = (task.template_metadata or {}).get("output_regex")
        letter = from_patterns(patterns, text, options)
        return letter or MODES[self.config.grading_mode or task.grading_mode](text, options)
