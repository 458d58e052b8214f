"""A notebook that lives on a tool worker."""
