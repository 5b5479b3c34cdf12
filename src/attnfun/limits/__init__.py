"""What is possible and impossible: lower bounds that hold for every method."""
