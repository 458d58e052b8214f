"""Programs that must print what is expected."""
