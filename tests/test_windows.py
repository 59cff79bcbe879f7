"""What Python has on Windows is enough, as far as that can be tested elsewhere."""

import subprocess
import sys

SCRIPT = """
import asyncio, multiprocessing, os, signal, subprocess, sys

import jax, numpy as np, optax  # which know Windows; all that follows has to do without these:

for name in ("fork", "geteuid", "getpgid", "getuid", "killpg", "nice", "register_at_fork", "sched_getaffinity",
             "sched_setaffinity", "setsid", "statvfs", "sysconf", "uname", "wait4", "O_DIRECTORY", "O_NOFOLLOW"):
    delattr(os, name)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "pthread_kill", "pthread_sigmask", "setitimer"):
    delattr(signal, name)
sys.modules.update(dict.fromkeys(("fcntl", "grp", "pwd", "resource", "termios")))

import cntk as C

x, y = C.input_variable(2), C.input_variable(2)
model = C.layers.Dense(2)(x)
learner = C.sgd(model.parameters, C.learning_parameter_schedule(0.1))
trainer = C.Trainer(model, C.cross_entropy_with_softmax(model, y), learner)
trainer.train_minibatch({x: np.eye(2, dtype=np.float32), y: np.eye(2, dtype=np.float32)})
trainer.save_checkpoint("model")
trainer.restore_from_checkpoint("model")
C.device.try_set_default_device(C.cpu(), acquire_device_lock=True)

sys.platform = "win32"
from cntkjax import cli
assert cli.main(["info", "model"]) == 0
"""


def test_a_model_is_trained_saved_and_inspected_without_what_only_unix_has(tmp_path):
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, check=True)
