"""The agents, and `agent_factory`, which makes one from a configuration file."""
