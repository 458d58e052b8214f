"""Competition maths with a stateful Python tool."""
