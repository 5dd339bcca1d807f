"""Try engines and precisions on a model, verify each, and leave a folder that runs the one that won."""
