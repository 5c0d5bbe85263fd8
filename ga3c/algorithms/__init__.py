"""What is learned: one file per algorithm."""
