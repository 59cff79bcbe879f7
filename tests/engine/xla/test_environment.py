"""What a compiled program depends on besides its graph: options that change code count, others do not."""

import jax

from cntkjax.engine.xla import environment
from cntkjax.engine.xla.platform import lowering_for


def test_options_that_change_what_is_computed_make_another_environment():
    usual = environment.environment()
    with jax.default_matmul_precision("highest"):
        precise = environment.environment()
    with jax.enable_x64(True):
        double = environment.environment()
    with lowering_for("gpu"):
        for_gpu = environment.environment()
    assert len({usual, precise, double, for_gpu}) == 4
    assert environment.environment() == usual


def test_options_that_only_report_do_not():
    usual = environment.environment()
    with jax.log_compiles():
        assert environment.environment() == usual


def test_code_is_that_of_all_modules_of_the_package():
    names = [name for name, _, _ in environment._sources()]
    assert len(names) == len(set(names)) and "engine/xla/environment.py" in names
    assert all(size > 0 for name, size, _ in environment._sources() if not name.endswith("__init__.py"))
    assert environment.code() == environment.code() != environment.device_and_versions()
