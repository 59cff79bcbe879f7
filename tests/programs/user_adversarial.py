"""Programs of users whose networks play against each other, or against a world."""

import numpy as np
from cntk.layers import Convolution2D, ConvolutionTranspose2D, Dense, Sequential

import cntk as C
from tests.programs.common import fix, numbers, program


def rate(value):
    return C.learning_parameter_schedule(value)


@program
def cycle_gan():
    """Two generators and two discriminators in one net: three trainers, each with parameters of its own."""
    shape = (1, 6, 6)

    def generator(name):
        return Sequential(
            [
                Convolution2D((3, 3), 3, activation=C.relu, pad=True, name=name + ".down"),
                ConvolutionTranspose2D((3, 3), 1, activation=C.tanh, pad=True, output_shape=(6, 6), name=name + ".up"),
            ]
        )

    def discriminator():
        return Sequential([Convolution2D((3, 3), 2, activation=C.leaky_relu, strides=2), Dense(1)])

    real_a, real_b = C.input_variable(shape, name="A"), C.input_variable(shape, name="B")
    to_b, to_a, judge_a, judge_b = generator("A2B"), generator("B2A"), discriminator(), discriminator()
    fake_b, fake_a = to_b(real_a), to_a(real_b)
    cycled_a, cycled_b = to_a(fake_b), to_b(fake_a)
    of_real_a, of_real_b, of_fake_a, of_fake_b = judge_a(real_a), judge_b(real_b), judge_a(fake_a), judge_b(fake_b)
    cycle = C.reduce_mean(C.abs(cycled_a - real_a)) + C.reduce_mean(C.abs(cycled_b - real_b))
    g_loss = C.reduce_mean(C.square(of_fake_a - 1) + C.square(of_fake_b - 1)) + 10 * cycle
    d_a_loss = 0.5 * C.reduce_mean(C.square(of_real_a - 1) + C.square(of_fake_a))
    d_b_loss = 0.5 * C.reduce_mean(C.square(of_real_b - 1) + C.square(of_fake_b))
    fix(C.combine([g_loss, d_a_loss, d_b_loss]), 0.4)
    generators = list(to_b.parameters) + list(to_a.parameters)

    def trainer(loss, parameters):
        learner = C.adam(parameters, rate(0.01), C.momentum_schedule(0.5), variance_momentum=C.momentum_schedule(0.999))
        return C.Trainer(None, (loss, None), [learner])

    parts = [(g_loss, generators), (d_a_loss, judge_a.parameters), (d_b_loss, judge_b.parameters)]
    trainers = [trainer(loss, parameters) for loss, parameters in parts]
    history = []
    for step in range(4):
        a, b = numbers(4, *shape, seed=step), numbers(4, *shape, seed=step + 9)
        outputs = trainers[0].train_minibatch({real_a: a, real_b: b}, outputs=[fake_a.output, fake_b.output])[1]
        for one in trainers[1:]:
            one.train_minibatch({real_a: a, real_b: b})
        history.append([t.previous_minibatch_loss_average for t in trainers])
    return {"loss": history, "fake": [np.asarray(outputs[fake_a.output]), np.asarray(outputs[fake_b.output])]}


@program
def wgan_with_clipping():
    """A critic that takes several steps for each of the generator, and whose weights are clipped after each."""
    noise, real = C.input_variable(3), C.input_variable((1, 4, 4))
    generate = Sequential([Dense(8, activation=C.relu), Dense((1, 4, 4))])
    criticize = Sequential([Dense(8, activation=lambda x: C.leaky_relu(x, 0.2)), Dense(1)])
    fake = generate(noise)
    of_real = fix(criticize(real))
    of_fake = of_real.clone(method="share", substitutions={real: fake.output})
    fix(fake, seed=20)
    critic_loss, generator_loss = C.reduce_mean(of_fake - of_real), -C.reduce_mean(of_fake)
    options = dict(gamma=0.9, inc=1.1, dec=0.9, max=10.0, min=0.1, use_mean_gradient=True)
    critic = C.Trainer(of_real, critic_loss, [C.rmsprop(of_real.parameters, rate(0.02), **options)])
    generator = C.Trainer(fake, generator_loss, [C.rmsprop(fake.parameters, rate(0.02), **options)])
    clip = C.combine([C.assign(p, C.clip(p, -0.2, 0.2)) for p in of_real.parameters])
    history = []
    for step in range(3):
        for k in range(2):
            critic.train_minibatch({noise: numbers(6, 3, seed=10 * step + k), real: numbers(6, 1, 4, 4, seed=step)})
            clip.eval()
        generator.train_minibatch({noise: numbers(6, 3, seed=step + 50)})
        history.append([critic.previous_minibatch_loss_average, generator.previous_minibatch_loss_average])
    largest = [float(abs(p.value).max()) for p in of_real.parameters]
    return {"loss": history, "largest": largest, "made": fake.eval({noise: numbers(2, 3)})}


@program
def variational_autoencoder():
    """Means and deviations of a code, noise that is fed, and the divergence from a normal distribution in the loss."""
    x, noise = C.input_variable(12), C.input_variable(3)
    hidden = Dense(8, activation=C.softplus)(x)
    mean, log_variance = Dense(3, name="mean")(hidden), Dense(3, name="log_variance")(hidden)
    code = mean + C.exp(0.5 * log_variance) * noise
    decode = Sequential([Dense(8, activation=C.softplus), Dense(12, activation=C.sigmoid)])
    z = decode(code)
    divergence = -0.5 * C.reduce_sum(1 + log_variance - C.square(mean) - C.exp(log_variance))
    loss = C.reduce_sum(C.binary_cross_entropy(z, x)) * 12 + divergence
    fix(loss)
    trainer = C.Trainer(z, (loss, divergence), [C.adam(
        z.parameters, rate(0.02), C.momentum_schedule(0.9), adamax=True)])
    data = (numbers(8, 12) > 0).astype(np.float32)
    history = []
    for step in range(5):
        trainer.train_minibatch({x: data, noise: numbers(8, 3, seed=step)})
        history.append([trainer.previous_minibatch_loss_average, trainer.previous_minibatch_evaluation_average])
    fixed = C.input_variable(3)
    return {"loss": history, "drawn": decode(fixed).eval({fixed: numbers(2, 3, seed=7)})}


@program
def deep_q_network_with_a_frozen_clone():
    """Targets come from a frozen clone that is renewed; the loss is Huber's, of the chosen action alone."""
    states, actions, gamma = 4, 3, 0.9
    observation, action = C.input_variable(states, name="s"), C.input_variable(actions, name="a")
    after, reward, done = C.input_variable(states, name="s'"), C.input_variable(()), C.input_variable(())
    q = fix(Sequential([Dense(10, activation=C.relu), Dense(actions)])(observation))
    target = q.clone(C.CloneMethod.freeze, {observation: after})
    chosen = C.reduce_sum(q * action, axis=0)
    wanted = C.stop_gradient(reward + (1 - done) * gamma * C.reduce_max(target, axis=0))
    error = C.abs(C.reshape(wanted, 1) - C.reshape(chosen, 1))
    huber = C.reduce_mean(C.element_select(C.less(error, 1), 0.5 * C.square(error), error - 0.5))
    learner = C.adam(
        q.parameters, rate(0.01), C.momentum_schedule(0.95), variance_momentum=C.momentum_schedule(0.95),
        gradient_clipping_threshold_per_sample=0.5, gradient_clipping_with_truncation=False,
    )
    trainer = C.Trainer(q, (huber, None), [learner])
    history, renewed = [], []
    for step in range(8):
        rng = np.random.RandomState(step)
        trainer.train_minibatch({
            observation: numbers(6, states, seed=step), after: numbers(6, states, seed=step + 1),
            action: np.eye(actions, dtype=np.float32)[rng.randint(actions, size=6)],
            reward: rng.standard_normal(6).astype(np.float32), done: (rng.rand(6) < 0.2).astype(np.float32),
        })
        history.append(trainer.previous_minibatch_loss_average)
        if step % 4 == 3:
            target = q.clone("freeze", {observation: after})
            renewed.append(target.eval({after: numbers(2, states, seed=3)}))
    best = C.hardmax(q).eval({observation: numbers(3, states, seed=5)})
    return {"loss": history, "renewed": renewed, "best": best.argmax(axis=1), "learned": float(len(target.parameters))}


@program
def actor_and_critic():
    """A policy and a value over one body; gradients of both are added up over an episode and applied at its end."""
    state, action = C.input_variable(4), C.input_variable(2)
    gain = C.input_variable(1)
    body = Dense(6, activation=C.tanh)(state)
    policy, value = Dense(2, activation=C.softmax)(body), Dense(1)(body)
    both = fix(C.combine([policy, value]))
    advantage = C.stop_gradient(gain - value)
    log_chance = C.log(C.reduce_sum(policy * action) + 1e-6)
    entropy = -C.reduce_sum(policy * C.log(policy + 1e-6))
    loss = -log_chance * advantage - 0.01 * entropy + 0.5 * C.square(gain - value)
    learner = C.sgd(both.parameters, rate(0.05))
    history = []
    for episode in range(3):
        states = numbers(5, 4, seed=episode)
        chances = policy.eval({state: states})
        chosen = np.eye(2, dtype=np.float32)[(chances[:, 1] > 0.5).astype(int)]
        rewards = states[:, 0] * chosen[:, 0]
        returns = np.array([sum(r * 0.9**k for k, r in enumerate(rewards[t:])) for t in range(5)], np.float32)[:, None]
        result, value_of_loss = loss.grad(
            {state: states, action: chosen, gain: returns}, wrt=loss.parameters, outputs=[loss.output])
        learner.update(result, 5)
        history.append(float(np.sum(value_of_loss)))
    return {"loss": history, "W": [p.value for p in both.parameters]}
