"""The training step: criteria, gradients and learners in one program; loss scaling, rematerialization."""
