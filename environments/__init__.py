"""The environment interface, the registry, and one folder per environment.

An environment says what a task is, which tools the policy has, and how a finished rollout is scored. It knows nothing
of Kafka: workers call it, so it can be tried and tested with a plain function call.
"""
