"""Networks for short videos: their architectures, clips, training."""
