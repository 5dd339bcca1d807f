"""What the commands share: flags, pages of help, progress, and how a store and a result are opened."""
