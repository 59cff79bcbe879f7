"""NVIDIA's GPUs, as the driver lists them."""

from cntkjax.engine.xla import nvidia


def test_the_driver_lists_gpus_in_proc(tmp_path):
    for number, model in enumerate(["NVIDIA A100-SXM4-80GB", "NVIDIA L4"]):
        folder = tmp_path / "proc" / "driver" / "nvidia" / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 12\n")
    assert nvidia.gpus(tmp_path) == ["NVIDIA A100-SXM4-80GB", "NVIDIA L4"]
