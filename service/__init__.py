"""HTTP in, rollouts out."""
