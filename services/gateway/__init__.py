"""A model behind the APIs that agent harnesses speak: Responses, Chat Completions, Anthropic Messages (platform.md D2).

Any harness can be pointed at it; calls under `/ng-rollout/ID/` are recorded for that rollout (G1), with their tokens where the
engine tells them (D8). Read `app` (the routes), `call` (one call), `surfaces` (the three APIs), `captures` and `token_chains`.
"""
