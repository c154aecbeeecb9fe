"""Word problems whose numbers can be drawn anew: templates from data files, and two generators."""
