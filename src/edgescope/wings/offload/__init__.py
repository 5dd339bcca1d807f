"""Whether to compute at the edge or to offload over the network."""
