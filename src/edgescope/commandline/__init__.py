"""What the commands share: flags, the parser, progress, the screen, and how a store and a result are opened."""
