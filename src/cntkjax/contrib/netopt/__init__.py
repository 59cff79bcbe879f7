"""Smaller and faster networks: dense layers as products of two, convolutions of single bits."""

native_convolve_function_registered = False


def try_register_native_convolve_function() -> None:
    """Do nothing: binary convolutions need no native library here."""
