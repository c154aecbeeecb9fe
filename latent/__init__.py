"""The core that serving and training share: frozen reasoners, samplers and the one rollout loop."""
