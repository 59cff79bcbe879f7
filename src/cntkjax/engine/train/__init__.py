"""The training step: forward, backward and learners as one program."""
