"""Pages of the web for environments that read them."""
