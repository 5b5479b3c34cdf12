"""What `train` returns where the constructed object cannot hold trained weights: a network, its target, its file."""
