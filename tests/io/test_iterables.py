"""Data sets, loaders, frames and files of other libraries, as passes over items."""

import numpy as np
import pytest

from cntkjax.io import from_iterable
from cntkjax.layers.typing import Sequence, SparseTensor
from tests.io.test_iterable_source import STREAMS, first_column


class TestLibraries:
    """Data of other libraries; each needs the library."""

    def test_frames_of_pandas_and_parquet_files(self, tmp_path):
        pandas = pytest.importorskip("pandas", reason="reads frames of pandas")
        frame = pandas.DataFrame({"a": np.arange(10.0), "label": np.arange(10) % 3})
        source = from_iterable(frame, {"a": 1, "label": 3}, max_sweeps=1)
        source.restore_from_checkpoint({"sweep": 0, "item": 4, "samples": 4})
        assert source.next_minibatch(3)[source.streams.a].asarray().ravel().tolist() == [4, 5, 6]
        pytest.importorskip("pyarrow", reason="reads Parquet files")
        frame["words"] = [[1] * (i % 3 + 1) for i in range(10)]
        frame.to_parquet(tmp_path / "f.parquet", row_group_size=3)
        kinds = {"a": 1, "words": Sequence[SparseTensor[5]]}
        source = from_iterable(tmp_path / "f.parquet", kinds, max_sweeps=1)
        source.restore_from_checkpoint({"sweep": 0, "item": 4, "samples": 8})
        minibatch = source.next_minibatch(6)
        assert minibatch[source.streams.a].asarray().ravel().tolist() == [4, 5, 6]
        assert [s.shape[0] for s in minibatch[source.streams.words].as_sequences()] == [2, 3, 1]
        (tmp_path / "damaged.parquet").write_bytes(b"PAR1 nothing")
        with pytest.raises(RuntimeError, match=r"cannot read '.*damaged.parquet' as a Parquet file"):
            from_iterable(tmp_path / "damaged.parquet", {"a": 1}).next_minibatch(1)

    def test_data_sets_and_loaders_of_pytorch(self):
        torch = pytest.importorskip("torch", reason="reads data of PyTorch")
        data = torch.utils.data.TensorDataset(torch.arange(14.0).reshape(7, 2), torch.arange(7) % 3)
        for source in (
            from_iterable(data, STREAMS, max_sweeps=2),
            from_iterable(torch.utils.data.DataLoader(data, batch_size=3), STREAMS, max_sweeps=2),
        ):
            sizes = []
            while minibatch := source.next_minibatch(4):
                sizes.append((first_column(minibatch, source), minibatch[source.streams.y].end_of_sweep))
            assert sizes == [([0, 2, 4, 6], False), ([8, 10, 12], True)] * 2

    def test_data_sets_of_hugging_face(self):
        datasets = pytest.importorskip("datasets", reason="reads data sets of Hugging Face")
        data = datasets.Dataset.from_dict({"words": [[1, 2], [3], [0, 1, 2]], "label": [0, 1, 1]})
        kinds = {"words": Sequence[SparseTensor[5]], "label": 2}
        for source in (from_iterable(data, kinds), from_iterable(data.to_iterable_dataset(), kinds)):
            source.restore_from_checkpoint({"sweep": 0, "item": 1, "samples": 2})
            minibatch = source.next_minibatch(4)
            assert [s.shape[0] for s in minibatch[source.streams.words].as_sequences()] == [1, 3]
            assert minibatch[source.streams.label].end_of_sweep
