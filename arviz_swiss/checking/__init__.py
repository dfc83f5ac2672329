"""What speaks against a merge, in numbers and in words."""
