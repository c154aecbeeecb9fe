"""The playground: a page at `/` that asks the service as any other client does."""
