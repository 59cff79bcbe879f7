"""Kernels of training steps on GPUs: how they are counted, and how many there are at most."""

import argparse
import importlib.util

import jax
import numpy as np
import pytest

import cntk as C
from benchmarks import gpu_command, gpu_programs, gpu_scaling, hlo
from benchmarks.tracing import trace_for

HLO = """\
HloModule jit_step

%fused (p: f32[8,4], u: f32[1,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  %u = f32[1,4]{1,0} parameter(1)
  ROOT %dus = f32[8,4]{1,0} dynamic-update-slice(%p, %u, %u, %u)
}

%body (state: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %state = (s32[], f32[8,4]{1,0}) parameter(0)
  %x = f32[8,4]{1,0} get-tuple-element(%state), index=1
  %store = f32[8,4]{1,0} fusion(%x, %x), kind=kLoop, calls=%fused
  %gemm = (f32[8,4]{1,0}, s8[4194304]{0}) custom-call(%x), custom_call_target="__cublas$gemm"
  ROOT %next = (s32[], f32[8,4]{1,0}) tuple(%x, %store)
}

%condition (state: (s32[], f32[8,4])) -> pred[] {
  %state = (s32[], f32[8,4]{1,0}) parameter(0)
  ROOT %less = pred[] compare(%state, %state), direction=LT
}

ENTRY %main (a: f32[8,4]) -> f32[8,4] {
  %a = f32[8,4]{1,0} parameter(0)
  %conv = (f32[8,4]{1,0}, u8[0]{0}) custom-call(%a), custom_call_target="__cudnn$convForward"
  %loop = (s32[], f32[8,4]{1,0}) while(%a), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"5"}}
  %until = (s32[], f32[8,4]{1,0}) while(%a), condition=%condition, body=%body
  ROOT %result = f32[8,4]{1,0} get-tuple-element(%loop), index=1
}
"""


def test_kernels_are_counted_with_the_steps_of_their_loops():
    counted = hlo.kernels(HLO)
    assert counted.loops == [(2, 5), (3, None)]  # the second is waited for, with a kernel for its condition
    assert counted.kinds == {"convolution": 1, "store": 5 + 1, "product": 5 + 1, "compare": 1}
    assert counted.count == 14
    x = 8 * 4 * 4
    convolution, store, product, compare = x + x, x + 4 * 4, x + x, 2 * (4 + x) + 1  # workspaces do not count
    assert counted.bytes == convolution + 6 * (store + product) + compare


def test_bytes_of_shapes():
    assert hlo.size_of("(f32[8,4]{1,0}, (pred[], bf16[3]{0}))") == 8 * 4 * 4 + 1 + 3 * 2


def test_a_training_step_is_traced_not_run():
    x = C.input_variable(2)
    loss = C.reduce_sum(C.layers.Dense(1)(x))
    parameter = loss.parameters[0]
    before = parameter.value.copy()

    def script():
        C.Trainer(loss, loss, C.sgd(loss.parameters, 0.1)).train_minibatch({x: np.ones((3, 2), np.float32)})

    step = trace_for("gpu", jax.sharding.SingleDeviceSharding(jax.devices()[0]), script)
    assert "dot_general" in step.traced.lower().as_text()
    np.testing.assert_array_equal(parameter.value, before)


needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None, reason="needs XLA's GPU compiler: pip install 'jax[cuda12]'"
)


def figures(network, target):
    """Those of a step without callbacks and numbers of double precision."""
    options = argparse.Namespace(target=target, atis=None)
    result = gpu_command.in_own_process("gpu-programs", options, network)
    assert result["float64"] == 0 and "callback" not in result["kinds"]
    return result


@needs_compiler
@pytest.mark.parametrize("network", sorted(gpu_programs.LIMITS.keys() - {"atis"}))
def test_a_step_launches_and_moves_at_most_so_much(network):
    step, limit = figures(network, "h100"), gpu_programs.LIMITS[network]
    assert step["kernels"] <= limit.kernels and step["mb"] <= limit.megabytes


@needs_compiler
@pytest.mark.parametrize("target", ["a100", "l4"])
def test_steps_compile_for_other_gpus(target):
    assert figures("grouped", target)["kinds"]["convolution"] > 0


@needs_compiler
@pytest.mark.parametrize("topology", gpu_scaling.TOPOLOGIES)
@pytest.mark.parametrize("network", ["attention", "bilstm", "rnnstack"])
def test_gradients_are_on_their_way_before_the_backward_pass_ends(network, topology):
    """Kernels of it run between the start of an exchange and its end, in one host and in several."""
    result = gpu_command.in_own_process("gpu-scaling", argparse.Namespace(target="h100", atis=None), network, topology)
    assert any(gpu_scaling.AllReduce(*a).meanwhile > 0 for a in result["all_reduces"])
