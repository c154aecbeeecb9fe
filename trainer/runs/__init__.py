"""What every training or evaluation run shares."""
