"""``cntk`` is ``cntkjax``: the same module objects under both names, whoever imports first."""
import importlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import cntk as C
import cntkjax

SRC = Path(cntkjax.__file__).parents[1]


def python(*args: str, cwd: Path | None = None) -> str:
    """Standard output of a fresh interpreter that finds the packages of this working tree."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")]))
    run = subprocess.run([sys.executable, *args], env=env, cwd=cwd, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_package_is_the_same_object():
    assert C is cntkjax
    assert sys.modules["cntk"] is sys.modules["cntkjax"]


def test_version_is_the_one_scripts_check():
    assert C.__version__ == "2.7"


@pytest.mark.parametrize("name", ["device", "logging", "logging.progress_print", "default_options", "cntk_py"])
def test_submodules_are_the_same_objects(name):
    assert importlib.import_module("cntk." + name) is importlib.import_module("cntkjax." + name)


def test_layers_show_the_operations_on_sequences_and_hide_the_layers_of_that_name():
    """LightRNN of CNTK's examples declares its inputs so."""
    python("-c", "from cntk.layers.sequence import Recurrence\nimport cntk\nfrom cntk.layers import sequence\n"
           "assert sequence is cntk.ops.sequence\nsequence.input_variable(2)")


def test_the_compiled_module_is_importable_by_its_name():
    """Faster R-CNN of CNTK's examples takes force_deterministic_algorithms from there."""
    python("-c", "import cntk\nfrom _cntk_py import force_deterministic_algorithms as f\n"
           "assert f is cntk.cntk_py.force_deterministic_algorithms")


def test_the_compiled_module_may_be_imported_first():
    """As the ResNet of CNTK's examples does."""
    python("-c", "import _cntk_py\nimport cntk\nfrom cntk import _cntk_py as again\n"
           "assert _cntk_py is again is cntk.cntk_py\n_cntk_py.set_computation_network_trace_level(0)")


def test_functions_keep_their_names_when_the_module_of_that_name_is_imported():
    python("-c", "import cntk as C\nfrom cntk.default_options import default_options\nimport cntk.default_options\n"
                 "assert C.default_options is default_options and callable(C.default_options)")


@pytest.mark.parametrize("order", ["import cntk.device, cntkjax.device", "import cntkjax.device, cntk.device"])
def test_the_same_object_whichever_name_comes_first(order):
    same = "assert cntk.device is cntkjax.device; from cntk.device import cpu; assert cpu is cntkjax.device.cpu"
    python("-c", order + "; " + same + "; assert cntk.device.__name__ == 'cntkjax.device' == cntk.device.__spec__.name")


def test_a_missing_module_is_reported_under_the_name_that_was_asked_for():
    with pytest.raises(ModuleNotFoundError, match=r"cntk\.no_such_module"):
        importlib.import_module("cntk.no_such_module")


def test_reload_keeps_one_module():
    """In a process of its own: a reload creates new classes, unknown to holders of the old ones."""
    python("-c", """
import importlib, sys
for name in ("cntk", "cntk.device", "cntk.logging"):
    module = importlib.import_module(name)
    assert importlib.reload(module) is module is sys.modules[name] is sys.modules[name.replace("cntk", "cntkjax")]
""")


def test_a_pickle_names_the_true_home_and_loads_under_both_names():
    from cntk.device import DeviceKind

    data = pickle.dumps(DeviceKind.GPU, protocol=2)
    assert b"cntkjax.device\n" in data
    assert pickle.loads(data) is pickle.loads(data.replace(b"cntkjax.device\n", b"cntk.device\n")) is DeviceKind.GPU


def test_a_module_runs_as_a_script():
    assert python("-m", "cntk.device") == ""


def test_folders_appended_to_a_package_path_are_found_under_both_names(tmp_path):
    folder = tmp_path / "logging" / "tests"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "helper.py").write_text("VALUE = 7\n")
    (folder / "some_test.py").write_text("from .helper import VALUE\nfrom ..progress_print import ProgressPrinter\n")
    script = f"""
import cntk.logging
cntk.logging.__path__ = [*cntk.logging.__path__, {str(tmp_path / "logging")!r}]
import cntk.logging.tests.some_test as a, cntkjax.logging.tests.some_test as b, cntk.logging.tests.helper as h
assert a is b and a.VALUE == h.VALUE == 7
assert a.ProgressPrinter is cntk.logging.ProgressPrinter
assert a.__file__ == {str(folder / "some_test.py")!r}
"""
    python("-c", script)


def test_a_folder_that_tops_a_package_path_is_found_first(tmp_path):
    (tmp_path / "test_utils.py").write_text("MINE = True\n")
    script = f"""
import cntk.tests
cntk.tests.__path__ = [{str(tmp_path)!r}, *cntk.tests.__path__]
import cntk.tests.test_utils
assert cntk.tests.test_utils.MINE
"""
    python("-c", script)


def test_importing_it_draws_no_random_numbers():
    """Scripts seed before they import. On CNTK 2.7 this prints 44 and 0.8444218515250481."""
    printed = python("-c", "import random, numpy as np\nnp.random.seed(0)\nrandom.seed(0)\nimport cntk\n"
                           "print(np.random.randint(100), random.random())")
    assert printed.split() == ["44", "0.8444218515250481"]


def test_what_most_scripts_do_not_use_is_not_imported():
    """Of other packages, what `import jax` imports; and of jax, NumPy and this package not what takes long."""
    script = "import sys, {}; print(*sys.modules)"
    jax, package = (set(python("-c", script.format(name)).split()) for name in ("jax", "cntk"))
    added = {name for name in package - jax if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name.partition(".")[0] for name in added} <= {"cntk", "_cntk_py", "cntkjax", "jax", "numpy", "__mp_main__"}
    slow = ("jax.extend", "jax._src.pallas", "jax.export", "jax.scipy", "numpy.testing", "cntkjax.cli",
            "cntkjax.contrib.",
            "cntkjax.formats.onnx.", "cntkjax.interop._stablehlo", "cntkjax.interop._flax",
            "cntkjax.learners._transforms")
    assert not [name for name in sorted(added) if name.startswith(slow)]
    assert not added & {"multiprocessing.managers", "xml.etree.ElementTree", "unittest"}


def test_a_learner_is_created_when_optax_has_not_been_imported():
    script = "import sys, cntk as C; assert 'optax' not in sys.modules; C.sgd([C.parameter(2)], 0.1).transform; " \
             "assert 'optax' in sys.modules"
    python("-c", script)


FROM_THREADS = """
import sys, threading, time

statements = ["import cntk; cntk.layers.Dense", "import cntk.ops.functions; cntk.Trainer",
              "from cntk import *; Trainer",
              "from cntk.io import MinibatchSource", "from cntk.logging.graph import plot", "import cntk.cntk_py as c"]
failed = []

def run(statement):
    try:
        exec(statement, {})
    except BaseException as error:
        failed.append((statement, error))

first = threading.Thread(target=run, args=["import cntk"])
first.start()
while "cntkjax.graph" not in sys.modules:
    time.sleep(0.001)
others = [threading.Thread(target=run, args=[statement]) for statement in statements]
for thread in others:
    thread.start()
for thread in [first, *others]:
    thread.join()
assert not failed, failed
"""


def test_threads_may_import_parts_of_it_while_another_imports_it():
    subprocess.run([sys.executable, "-c", FROM_THREADS], check=True)
