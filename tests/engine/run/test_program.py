"""Programs: how often they compile, which graphs share one, and which state must not change."""

import gc

import jax
import numpy as np
import pytest

import cntkjax as C
from cntkjax.engine.run.program_cache import programs


def compilations(f):
    """How many programs XLA compiles (or fetches from the cache) while f runs."""
    events = []

    def listen(event, *args, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        f()
    finally:
        jax.monitoring.clear_event_listeners()
    return len(events)


def dense_model(seed=0):
    rng = np.random.default_rng(seed)
    x = C.input_variable(3)
    return x, C.tanh(C.times(x, C.parameter(init=rng.random((3, 2), np.float32))))


def test_second_evaluation_does_not_compile():
    x, f = dense_model()
    f.eval({x: np.ones((5, 3))})
    assert compilations(lambda: f.eval({x: np.zeros((5, 3))})) == 0


def test_all_smaller_minibatches_share_one_program():
    x, f = dense_model()
    f.eval({x: np.ones((64, 3))})
    f.eval({x: np.ones((63, 3))})  # the one with padding
    values = []
    assert compilations(lambda: values.append(f.eval({x: np.ones((40, 3))}))) == 0
    assert values[0].shape == (40, 2)


@pytest.mark.parametrize("directory", ["", None])
def test_an_edit_of_one_graph_does_not_change_those_that_share_its_program(directory, tmp_path, monkeypatch):
    monkeypatch.setenv("CNTKJAX_CACHE_DIR", str(tmp_path) if directory is None else directory)

    def scale(f, count):
        """The factor of the values that are kept."""
        (x,) = f.arguments
        return f.grad({x: np.ones((count, 300), np.float32)}, wrt=[x]).max()

    f, g = (C.dropout(C.input_variable(300), 0.5) for _ in range(2))
    assert scale(f, 1) == scale(g, 1) == 2
    f.set_attribute("dropoutRate", 0.75)
    assert scale(g, 8) == 2, "traced for the first time"
    assert scale(f, 8) == 4
    programs.clear()
    assert scale(g, 8) == 2 and scale(f, 8) == 4, "stored"


def test_padding_changes_neither_values_nor_gradients():
    x, f = dense_model()
    data = np.random.default_rng(2).random((9, 3), np.float32)
    W = f.parameters[0]
    exact = f.eval({x: data}), f.grad({x: data}, wrt=[W])
    programs.clear()
    for count in (16, 15):  # without masks, and with them
        f.eval({x: np.ones((count, 3))})
        f.grad({x: np.ones((count, 3))}, wrt=[W])
    np.testing.assert_allclose(f.eval({x: data}), exact[0], rtol=1e-6)
    np.testing.assert_allclose(f.grad({x: data}, wrt=[W]), exact[1], rtol=1e-6)


def test_double_precision_is_scoped_to_the_programs_that_need_it():
    x = C.input_variable(2, dtype=np.float64)
    w = C.parameter(init=np.array([1 / 3, 1e-12]))
    value = (x + w).eval({x: [[1, 1]]})
    assert value.dtype == np.float64 and value[0, 1] != 1.0
    assert not jax.config.jax_enable_x64
    assert (x + w).grad({x: [[1, 1]]}, wrt=[w]).dtype == np.float64


def test_settings_of_jax_do_not_change():
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    x, f = dense_model()
    f.eval({x: np.ones((17, 3))})
    assert (jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs) == before


def test_a_value_that_the_user_holds_survives_training():
    w = C.parameter(init=np.ones(2, np.float32))
    x = C.input_variable(2)
    value = w.value
    loss = C.square(x * w)
    trainer = C.Trainer(loss, (loss, None), [C.sgd([w], 0.1)])
    for _ in range(3):
        trainer.train_minibatch({x: [[1, 2]]})
    np.testing.assert_array_equal(value, [1, 1])
    assert w.value[1] < 1


def test_an_evaluated_graph_can_be_collected():
    import weakref

    x, f = dense_model()
    f.eval({x: np.ones((5, 3))})
    programs.clear()
    reference = weakref.ref(f.root_function)
    del x, f
    gc.collect()
    assert reference() is None
