"""A recorded board instead of this machine."""
