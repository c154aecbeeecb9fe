"""Tables, figures and pages of a finished evaluation."""
