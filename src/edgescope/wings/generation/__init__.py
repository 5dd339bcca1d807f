"""Text generation: prompts in, tokens out, each token with its time."""
