"""The device process: runs rounds on the models it holds."""
