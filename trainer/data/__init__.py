"""Questions to train and measure on: files, the embedded generator, tokenised batches."""
