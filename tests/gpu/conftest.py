"""Says on which device the tests of this folder ran."""

from tests.gpu import devices


def pytest_terminal_summary(terminalreporter):
    if not devices.RUNS_ALL:
        return
    device = devices.other_device()
    if devices.is_rehearsal():
        terminalreporter.write_line(
            f"THERE IS NO GPU HERE: this was a rehearsal on {device}, with programs lowered as for GPUs. It says "
            'nothing about a GPU. On a machine with an NVIDIA GPU: pip install "jax[cuda12]", then make test-gpu'
        )
    else:
        terminalreporter.write_line(f"{device.device_kind} was compared with the CPU: {devices.TOLERANCES}")
