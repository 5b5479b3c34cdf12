"""What is impossible, and what the possible costs at least: lower bounds with obstructions that can be checked."""
