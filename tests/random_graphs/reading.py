"""What random programs about readers begin with, on CNTK 2.7 (Python 3.6) as on this package."""

import struct

import numpy as np

import cntk as C

MAGIC = struct.pack("<Q", 0x636E746B5F62696E)


def write(path, text):
    with open(path, "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())


def cbf(path, streams, chunks):
    """A binary file: (name, dimension, whether sparse) of streams; chunks of sequences, each a list for each stream.

    A dense step is a list of numbers, a sparse one a dict.
    """
    text, table = MAGIC + struct.pack("<I", 1), b""
    for chunk in chunks:
        lengths = [max(map(len, s)) for s in chunk]
        table += struct.pack("<qII", len(text), len(chunk), sum(lengths))
        text += struct.pack("<%dI" % len(chunk), *lengths)
        for i, (_, dim, is_sparse) in enumerate(streams):
            for steps in (s[i] for s in chunk):
                text += struct.pack("<I", len(steps))
                entries = [e for step in steps for e in sorted(step.items())] if is_sparse else []
                if is_sparse:
                    text += struct.pack("<I%df" % len(entries), len(entries), *[v for _, v in entries])
                    indices, counts = [k for k, _ in entries], list(map(len, steps))
                    text += struct.pack("<%di%dI" % (len(indices), len(counts)), *(indices + counts))
                else:
                    text += struct.pack("<%df" % (dim * len(steps)), *np.ravel(steps))
    header = MAGIC + struct.pack("<II", len(chunks), len(streams))
    for name, dim, is_sparse in streams:
        header += struct.pack("<BI%dsBI" % len(name), is_sparse, len(name), name.encode(), 0, dim)
    write(path, text + header + table + struct.pack("<q", len(text)))


def deserializer(make, path, streams, **options):
    """`streams`: (name, field, dimension, whether sparse) of each; further options go into the configuration."""
    fields = {
        name: C.io.StreamDef(field=field, shape=dim, is_sparse=is_sparse) for name, field, dim, is_sparse in streams
    }
    made = make(path, C.io.StreamDefs(**fields))
    for key, value in options.items():
        made[key] = value
    return made


def contents(source, minibatch, streams):
    """Of each stream: its name, the counts, whether a sweep ends, and the sequences."""
    shown = []
    for name, _, dim, is_sparse in streams:
        info = source.stream_info(name)
        if info in minibatch:
            part = minibatch[info]
            shown.append([name, part.num_sequences, part.num_samples, part.end_of_sweep, values(part, dim, is_sparse)])
    return shown


def values(part, dim, is_sparse):
    """The sequences; of pieces of sequences, which CNTK does not take apart, what they are and where they begin."""
    try:
        sequences = part.as_sequences(C.sequence.input_variable(dim, is_sparse=is_sparse))
        return [s.toarray() if hasattr(s, "toarray") else s for s in sequences]
    except (RuntimeError, ValueError):
        mask = np.array(part.mask)
        return [mask, part.asarray() * (mask != 0)[..., None]]


def minibatches(make, streams, sizes, parts=(1,), resumed_after=None):
    """What the minibatches of these sizes contain, for each worker; `resumed_after` some a new source goes on."""
    shown = []
    for count in parts:
        for rank in range(count):
            source = make()
            for i, size in enumerate(sizes):
                if i == resumed_after:
                    state = source.get_checkpoint_state()
                    source = make()
                    source.restore_from_checkpoint(state)
                minibatch = source.next_minibatch(size, num_data_partitions=count, partition_index=rank)
                shown.append(contents(source, minibatch, streams))
    return shown
