"""Learning: backbones that think in hidden states, and the samplers that perturb them."""
