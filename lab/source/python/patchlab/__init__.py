"""What the lab server computes with: constants that it reads once, when it starts."""
