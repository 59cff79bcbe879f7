"""Agents that learn by reinforcement: tables or networks of Q values, and policy gradients with a critic."""
