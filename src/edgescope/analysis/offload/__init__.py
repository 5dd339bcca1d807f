"""Here or over the network: when sending the work away pays."""
