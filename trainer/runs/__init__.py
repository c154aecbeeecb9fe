"""What every run shares: settings, ranks, output folder, checkpoint, divergence checks, progress."""
