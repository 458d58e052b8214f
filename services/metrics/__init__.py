"""Prometheus metrics of a worker, made when somebody asks from counts that are kept anyway."""
