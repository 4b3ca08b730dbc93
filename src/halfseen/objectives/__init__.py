"""What training minimises."""
