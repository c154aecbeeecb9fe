"""Trains a verifier of a frozen reasoner's trajectories, and measures its vote."""
