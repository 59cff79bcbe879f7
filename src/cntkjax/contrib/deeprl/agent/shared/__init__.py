"""What agents share: settings, networks, memories, views of observations."""
