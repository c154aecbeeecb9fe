"""Trains reasoners: COCONUT, CODI and text chain-of-thought."""
