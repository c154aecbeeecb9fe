"""Measures samplers on a set of questions, calibrates their votes and reports the results."""
