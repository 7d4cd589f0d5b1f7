"""Settings of the data, until the old notebooks read those of the new package."""
