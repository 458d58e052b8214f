"""Clients of model servers: one call of the policy (or of a judge), made to arrive or to fail within bounds.

Read `endpoint` (what is configured), `client` (one call), then `gate` (who may call now), which stands on `limiter` and
`breaker`.
"""
