"""User profiles (Orion, section 4.1)."""
