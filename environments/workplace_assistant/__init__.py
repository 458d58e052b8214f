"""Office work with tools over five small databases."""
