"""Generators against discriminators: clones that share parameters, alternating trainers. Scripts for CNTK 2.7.

The losses are pairs: the discriminator's, the generator's.
"""
import numpy as np

from tests.networks.common import adam, set_weights

NOISE, BATCH, STEPS = 4, 16, 200


def duel(C, generator, discriminator, real_samples, losses_of, learner, clipped=None, critic_steps=1):
    """Train both alternately. `losses_of` (scores of real, of generated samples) -> losses of both."""
    shape = real_samples.shape[1:]
    noise, real = C.input_variable(NOISE), C.input_variable(shape)
    generated = set_weights(generator(noise), 1)
    of_real = set_weights(discriminator(real), 2)
    of_generated = of_real.clone('share', {of_real.arguments[0]: generated.output})
    critic_loss, generator_loss = losses_of(of_real, of_generated)
    critic = C.Trainer(of_real, critic_loss, [learner(of_real)])
    artist = C.Trainer(generated, generator_loss, [learner(generated)])
    random = np.random.RandomState(3)

    def drawn():
        return random.standard_normal((BATCH, NOISE)).astype(np.float32)

    losses = []
    for _ in range(STEPS):
        for _ in range(critic_steps):
            chosen = real_samples[random.choice(len(real_samples), BATCH, replace=False)]
            critic.train_minibatch({real: chosen, noise: drawn()})
            for p in of_real.parameters if clipped else ():
                p.value = np.clip(p.value, -clipped, clipped)
        artist.train_minibatch({noise: drawn()})
        losses.append((critic.previous_minibatch_loss_average, artist.previous_minibatch_loss_average))
    return losses


def points():
    """128 points on a circle of radius 2."""
    angles = np.random.RandomState(1).uniform(0, 2 * np.pi, 128)
    return (2 * np.stack([np.cos(angles), np.sin(angles)], axis=1)).astype(np.float32)


def dense_generator(C):
    return C.layers.Sequential([C.layers.Dense(16, C.relu), C.layers.Dense(2)])


def dense_discriminator(C, activation):
    return C.layers.Sequential([C.layers.Dense(16, C.relu), C.layers.Dense(1, activation)])


def gan(C):
    def losses_of(real, generated):
        return -C.log(real) - C.log(1 - generated), -C.log(generated)

    return duel(C, dense_generator(C), dense_discriminator(C, C.sigmoid), points(), losses_of,
                lambda model: adam(C, model, 0.003))


def lsgan(C):
    def losses_of(real, generated):
        return 0.5 * (C.square(real - 1) + C.square(generated)), 0.5 * C.square(generated - 1)

    return duel(C, dense_generator(C), dense_discriminator(C, None), points(), losses_of,
                lambda model: adam(C, model, 0.003))


def wgan(C):
    def losses_of(real, generated):
        return generated - real, -generated

    def learner(model):
        return C.rmsprop(model.parameters, C.learning_parameter_schedule(0.01), 0.9, 1.2, 0.7, 5, 1e-4,
                         use_mean_gradient=True)

    return duel(C, dense_generator(C), dense_discriminator(C, None), points(), losses_of, learner, clipped=0.3,
                critic_steps=2)


def dcgan(C):
    """Transposed convolutions generate, strided convolutions discriminate, both with batch normalization."""
    L = C.layers
    rows, columns = np.mgrid[:8, :8]
    phases = np.random.RandomState(1).uniform(0, 2 * np.pi, (128, 1, 1, 1))
    images = np.sin(phases + (rows + columns) * np.pi / 4).astype(np.float32)
    generator = L.Sequential([
        L.Dense((6, 2, 2)), L.BatchNormalization(map_rank=1), C.relu,
        L.ConvolutionTranspose2D(3, 4, strides=2, pad=True, bias=False, output_shape=(4, 4)),
        L.BatchNormalization(map_rank=1), C.relu,
        L.ConvolutionTranspose2D(3, 1, C.tanh, strides=2, pad=True, output_shape=(8, 8))])
    discriminator = L.Sequential([
        L.Convolution2D(3, 4, C.leaky_relu, strides=2, pad=True),
        L.Convolution2D(3, 6, strides=2, pad=True, bias=False), L.BatchNormalization(map_rank=1), C.leaky_relu,
        L.Dense(1, C.sigmoid)])

    def losses_of(real, generated):
        return -C.log(real) - C.log(1 - generated), -C.log(generated)

    return duel(C, generator, discriminator, images, losses_of, lambda model: adam(C, model, 0.002))


NETWORKS = [gan, lsgan, wgan, dcgan]
