"""Where agents of your own are evaluated."""
