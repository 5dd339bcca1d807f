"""Record the sensors of a machine into one file that any machine can replay."""
