"""Proofs in Lean 4: the compiler decides. A partner that answers a failed attempt with what the compiler said."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field

from environments.environment import Config, Context, Environment, Move, Response, Reverify, State, Task, Verdict
from environments.math_formal_lean import feedback
from environments.math_formal_lean.proof import extract_code, proof_part
from schemas.errors import InfrastructureError, VerifierError

CLIENT_GRACE_S = 5.0
"""How much longer than the compiler may take is waited for the server's reply (the protocol's number)."""

_SORRY = re.compile(r"\bsorry\b", re.IGNORECASE)


class LeanTask(Task):
    """A theorem. `header` (imports, options) and `formal_statement` (up to `:= by` and a line break) precede the proof."""

    header: str
    formal_statement: str
    informal_prefix: str | None = None
    name: str | None = None
    turn_index: int = 0


class LeanConfig(Config):
    """How proofs are read and compiled. Times in seconds.

    `refinement_prompt_template` has the slots `{proof_attempt}` and `{error_message}`. Stricter than the reference where asked:
    a proof with one of `forbidden_words` is not compiled, `errors_from` may name stdout too, and with `server_errors` a server
    that does not work fails the rollout instead of scoring it 0.
    """

    compilation_timeout: float = Field(default=30.0, gt=0)
    max_output_characters: int = Field(default=1000, ge=0)
    extract_code_mode: Literal["first", "last"] = "last"
    restate_formal_statement: bool = True
    strip_theorem_from_proof: bool = True
    refinement_prompt_template: str | None = None
    forbidden_words: tuple[str, ...] = ()
    errors_from: tuple[Literal["stdout", "stderr"], ...] = ("stderr",)
    server_errors: Literal["score", "fail"] = "score"


class Attempts(State):
    """The attempts scored so far: of each what is short, of the last the whole verdict."""

    attempts: list[dict[str, Any]] = Field(default_factory=list)
    last: dict[str, Any] | None = None


class MathFormalLean(Environment):
    """Rewards a proof that compiles, and does so without `sorry`, with 1.0."""

    Task = LeanTask
    Config = LeanConfig
    State = Attempts
    reverify = Reverify.STATELESS

    async def respond(self, task: LeanTask, response: Response, state: Attempts, context: Context) -> Move:
        """Score the attempt; answer a failed one with what went wrong, end the rollout after a good one."""
        scored = await self._scored(task, response, len(state.attempts), context)
        state.last = scored
        short = ("turn_index", "proof_status", "reward", "error_feedback")
        state.attempts.append({name: scored[name] for name in short})
        if not scored["needs_correction"]:
            return Move(done=True)
        return Move(({"role": "user", "content": scored["correction_prompt"]},))

    async def verify(self, task: LeanTask, response: Response, state: Attempts | None, context: Context) -> Verdict:
        """The verdict on the last attempt: as `respond` found it, else compiled now."""
        last = state.last if state is not None else None
        return Verdict(**(last or await self._scored(task, response, task.turn_index, context)))

    async def _scored(self, task: LeanTask, response: Response, turn: int, context: Context) -> dict[str, Any]:
        generation = response.flat_text()
        if not generation.strip():
            return self._result(turn, "empty_generation", "", None, feedback.EMPTY, "(empty)")
        proof = self._proof(generation)
        code = task.header + (task.formal_statement if self.config.restate_formal_statement else "") + proof
        word = next((w for w in self.config.forbidden_words if re.search(rf"(?<!\w){re.escape(w)}(?!\w)", proof)), None)
        if word is not None:
            return self._result(turn, "forbidden_word", code, None, f"The word `{word}` must not be used.", generation)
        output = await self._compiled(code, context)
        status = _status(output)
        told = None if status == "completed" else self._feedback(status, output, code)
        return self._result(turn, status, code, output, told, generation)

    def _proof(self, generation: str) -> str:
        code = extract_code(generation, self.config.extract_code_mode)
        return proof_part(code) if self.config.strip_theorem_from_proof else code

    async def _compiled(self, code: str, context: Context) -> dict[str, Any]:
        """The compiler's status and output; raises `VerifierError` for a reply that lacks one of them."""
        config = self.config
        request = {
            "generated_code": code,
            "language": "lean4",
            "timeout": config.compilation_timeout,
            "max_output_characters": config.max_output_characters,
        }
        reply = await context.code_server.execute(request, timeout_s=config.compilation_timeout + CLIENT_GRACE_S)
        if config.server_errors == "fail" and reply.get("process_status") == "error":
            raise InfrastructureError(f"the code server (setting `code_server.url`) failed: {reply.get('stderr')}")
        for name in ("stdout", "stderr"):
            if not isinstance(reply.get(name), str):
                raise VerifierError(f"the code server's reply has no {name}: {str(dict(reply))[:500]}")
        return {name: reply[name] for name in ("process_status", "stdout", "stderr") if name in reply}

    def _feedback(self, status: str, output: dict[str, Any], code: str) -> str:
        if status == "timeout":
            return feedback.TIMED_OUT
        streams = [output[name] for name in self.config.errors_from]
        return feedback.feedback(output["stdout"], output["stderr"], code, streams)

    def _result(
        self, turn: int, status: str, code: str, output: dict[str, Any] | None, told: str | None, generation: str
    ) -> dict[str, Any]:
        right = status == "completed"
        template = self.config.refinement_prompt_template or feedback.TEMPLATE
        slots = {"proof_attempt": generation, "error_message": told or ""}
        return {
            "reward": float(right),
            "proof_status": status,
            "predicted_proof": code,
            "compiler_output": output,
            "turn_index": turn,
            "needs_correction": not right,
            "error_feedback": told,
            "correction_prompt": None if right else feedback.fill(template, slots),
        }


def _status(output: dict[str, Any]) -> str:
    status = str(output.get("process_status", "unknown"))
    if status == "completed" and any(_SORRY.search(output[name]) for name in ("stdout", "stderr")):
        return "has_sorry"
    return status
