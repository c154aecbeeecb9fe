"""The HTTP service: API, engine, workers and client."""
