"""SQL for a question about a schema, compared with a gold query by a judge."""
