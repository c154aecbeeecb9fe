"""Questions to train and evaluate on: data files, the embedded generator, tokenised batches."""
