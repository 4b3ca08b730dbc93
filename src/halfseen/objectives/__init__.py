"""The objectives that training minimises."""
