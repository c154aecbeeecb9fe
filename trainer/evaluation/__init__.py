"""Measures samplers on a set of questions, and reports what came out."""
