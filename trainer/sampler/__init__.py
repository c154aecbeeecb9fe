"""Trains a Gaussian Thought Sampler for a frozen reasoner with GRPO."""
