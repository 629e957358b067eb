"""From files to numbers and pictures."""
