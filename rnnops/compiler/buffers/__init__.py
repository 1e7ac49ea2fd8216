"""Where every byte lives: requirements, lifetimes, orders of ops, one arena."""
