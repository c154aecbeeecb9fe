"""The `gts` command: one file per subcommand, heavy imports only inside them."""
