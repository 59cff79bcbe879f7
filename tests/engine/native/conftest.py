import pytest

from cntkjax import _build_native
from cntkjax.engine.native.library import _load


@pytest.fixture(scope="session", params=_build_native.STEPS, ids=lambda library: library.path.stem)
def native(request, tmp_path_factory):
    """The library, compiled here from its source for each set of vector instructions."""
    if _build_native.compiler() is None:
        pytest.skip("needs a C compiler")
    path = tmp_path_factory.mktemp("native") / request.param.path.name
    assert _build_native.build(request.param, path) is None
    loaded = _load(path)
    if loaded is None:
        pytest.skip("this processor lacks the instructions")
    return loaded
