"""A generator of points on a ring, trained against a critic whose slope is held at 1: WGAN-GP.

    python wgan_gp.py

The penalty is a gradient inside a loss, `C.gradient`, which CNTK 2.7 does not have.
Source: Gulrajani et al., Improved Training of Wasserstein GANs, 2017.
"""
import argparse

import numpy as np

import cntk as C

RADIUS, SPREAD, SECTORS = 1.0, 0.05, 8
NOISE, WIDTH = 2, 64
MINIBATCH, CRITIC_STEPS, PENALTY = 128, 5, 1.0


def points(count, random):
    """Points of the data, [count, 2]: at all angles, about 1 from the middle."""
    angles = random.uniform(-np.pi, np.pi, count)
    radii = RADIUS + SPREAD * random.standard_normal(count)
    return np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1).astype(np.float32)


def network(outputs):
    return C.layers.Sequential([
        C.layers.For(range(3), lambda: C.layers.Dense(WIDTH, activation=C.relu)),
        C.layers.Dense(outputs)])


def main(steps=2000, seed=1):
    C.cntk_py.set_fixed_random_seed(seed)
    random = np.random.RandomState(seed)
    real, noise, share = C.input_variable(2), C.input_variable(NOISE), C.input_variable(1)
    generator, critic = network(2)(noise), network(1)(C.placeholder(2))

    def judged(x):
        return critic.clone('share', {critic.placeholders[0]: x})

    between = share * real + (1 - share) * generator
    slope = C.gradient(judged(between), between)
    penalty = C.square(C.sqrt(C.reduce_sum(C.square(slope))) - 1)
    critic_loss = judged(generator) - judged(real) + PENALTY * penalty
    generator_loss = -judged(generator)

    def trainer(loss, parameters, rate):
        rate = C.learning_parameter_schedule(rate, minibatch_size=C.learners.IGNORE)
        learner = C.adam(parameters, rate, C.momentum_schedule(0.5), variance_momentum=C.momentum_schedule(0.9))
        return C.Trainer(loss, (loss,), [learner])

    critic_trainer = trainer(critic_loss, judged(real).parameters, 0.01)
    generator_trainer = trainer(generator_loss, generator.parameters, 0.004)

    def noises():
        return random.standard_normal((MINIBATCH, NOISE)).astype(np.float32)

    for step in range(1, steps + 1):
        for _ in range(CRITIC_STEPS):
            shares = random.random_sample((MINIBATCH, 1)).astype(np.float32)
            critic_trainer.train_minibatch({real: points(MINIBATCH, random), noise: noises(), share: shares})
        generator_trainer.train_minibatch({noise: noises()})
        if step % 250 == 0:
            away, covered = quality(generator, random)
            print(f'Step {step:5d}: critic {critic_trainer.previous_minibatch_loss_average:7.4f}, '
                  f'{away:.3f} from the ring, {covered} of {SECTORS} parts of it covered')
    return quality(generator, random)


def quality(generator, random, count=1000):
    """(mean distance of generated points from the ring, how many of its parts get at least half of their share)."""
    x, y = generator.eval(random.standard_normal((count, NOISE)).astype(np.float32)).T
    parts = np.floor((np.arctan2(y, x) / (2 * np.pi) + 0.5) * SECTORS).astype(int) % SECTORS
    covered = np.sum(np.bincount(parts, minlength=SECTORS) >= count / SECTORS / 2)
    return np.mean(np.abs(np.hypot(x, y) - RADIUS)), int(covered)


if __name__ == '__main__':
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('--steps', type=int, default=2000)
    arguments.add_argument('--seed', type=int, default=1)
    main(**vars(arguments.parse_args()))
