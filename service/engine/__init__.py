"""Admission, scheduling and the worker pool. Imports no torch."""
