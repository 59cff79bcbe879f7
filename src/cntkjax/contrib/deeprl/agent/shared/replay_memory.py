"""The memory of transitions from which an agent learns."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from ....._typing import ArrayLike


class _Transition(NamedTuple):
    """What an agent remembers of a step; `next_state` is None where the episode ended."""

    state: ArrayLike
    action: int
    reward: float
    next_state: Any
    priority: float = 0.0


class ReplayMemory:
    """The last `capacity` transitions, sampled uniformly or, if `prioritized`, in proportion to their priorities.

    With priorities it is a sum tree: each inner node holds the sum of priorities below it; the leaves are transitions.

    >>> memory = ReplayMemory(3)
    >>> memory.store("state", 0, 1.0, None, 0)
    >>> memory.sample_minibatch(2)
    [(0, _Transition(state='state', action=0, reward=1.0, next_state=None, priority=0))]
    """

    def __init__(self, capacity: int, prioritized: bool = False) -> None:
        self._capacity, self._prioritized = capacity, prioritized
        self._first = capacity - 1 if prioritized else 0  # of the leaves
        self._memory: list[Any] = [0] * self._first + [None] * capacity
        self._stored = 0  # in total, including overwritten ones

    def store(self, *args: Any) -> None:
        """Store state, action, reward, next state and priority; replaces the oldest if the memory is full."""
        position = self._next_position_then_increment()
        previous = self._memory[position]
        self._memory[position] = transition = _Transition(*args)
        self._update_internal_nodes(position, transition.priority - (previous.priority if previous else 0))

    def update_priority(self, map_from_position_to_priority: Mapping[int, float]) -> None:
        """Change priorities, by the positions that `sample_minibatch` returned."""
        for position, priority in map_from_position_to_priority.items():
            transition = self._memory[position]
            self._memory[position] = transition._replace(priority=priority)
            self._update_internal_nodes(position, priority - transition.priority)

    def size(self) -> int:
        """The number of transitions."""
        return min(self._stored, self._capacity)

    def sample_minibatch(self, batch_size: int) -> list[tuple[int, _Transition]]:
        """Positions and transitions: distinct ones, or with priorities one from each of equal parts of their sum."""
        if not self.size():
            return []
        if self._prioritized:
            part = self._memory[0] / batch_size if self._first else 0
            positions = [self._sample_with_priority((i + random.random()) * part) for i in range(batch_size)]
        else:
            positions = random.sample(range(self.size()), min(batch_size, self.size()))
        return [(p, self._memory[p]) for p in positions]

    def _next_position_then_increment(self) -> int:
        self._stored += 1
        return self._first + (self._stored - 1) % self._capacity

    def _update_internal_nodes(self, index: int, delta: float) -> None:
        while self._first and index > 0:
            index = (index - 1) // 2
            self._memory[index] += delta

    def _sample_with_priority(self, p: float) -> int:
        """The leaf at which the sum of priorities from the left exceeds p."""
        position = 0
        while position < self._first:
            left, right = 2 * position + 1, 2 * position + 2
            subtree = self._memory[left]
            weight = subtree.priority if isinstance(subtree, _Transition) else subtree or 0
            if p < weight or self._memory[right] is None or self._memory[right] == 0:
                position = left
            else:
                p, position = p - weight, right
        return position
