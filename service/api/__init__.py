"""The HTTP API: requests in, responses and event streams out."""
