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


def bitmap(path, seed, height, width, channels):
    """An image of random intensities, gray or in color: a BMP file, which CNTK reads without other libraries."""
    pixels = np.random.RandomState(seed).randint(0, 256, (height, width * channels)).astype(np.uint8)
    rows = np.pad(pixels, ((0, 0), (0, -width * channels % 4)), "constant").tobytes()
    grays = b"" if channels == 3 else np.repeat(np.arange(256), 4).astype(np.uint8).tobytes()
    begin = 54 + len(grays)
    header = struct.pack("<2sIHHI", b"BM", begin + len(rows), 0, 0, begin)
    header += struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8 * channels, 0, len(rows), 0, 0, len(grays) // 4, 0)
    write(path, header + grays + rows)


def mean_image(path, height, width):
    """A file with the mean of images of this size."""
    size, numbers = 3 * height * width, " ".join(str(i % 97) for i in range(3 * height * width))
    write(path, (
        '<?xml version="1.0" ?><opencv_storage><Channel>3</Channel><Row>%d</Row><Col>%d</Col>'
        '<MeanImg type_id="opencv-matrix"><rows>1</rows><cols>%d</cols><dt>f</dt><data>%s</data></MeanImg>'
        "</opencv_storage>" % (height, width, size, numbers)
    ))


def frames(path, seed, number, dim):
    """A file of speech features."""
    values = np.random.RandomState(seed).randint(-16, 17, (number, dim)) / 4
    write(path, struct.pack(">iihh", number, 100000, 4 * dim, 6) + values.astype(">f4").tobytes())


def binary_labels(path, utterances):
    """A binary file of labels: (name, [(label, frames), ...]) of utterances."""
    text = b"MLF" + struct.pack("<h", 2)
    for name, runs in utterances:
        text += struct.pack("<H", len(name)) + name.encode() + struct.pack("<IH", sum(n for _, n in runs), len(runs))
        text += b"".join(struct.pack("<HH", *run) for run in runs)
    write(path, text)


def deserializer(make, path, streams, **options):
    """`streams`: (name, field, dimension, whether sparse) of each; further options go into the configuration."""
    fields = {
        name: C.io.StreamDef(field=field, shape=dim, is_sparse=is_sparse) for name, field, dim, is_sparse in streams
    }
    made = make(path, C.io.StreamDefs(**fields))
    for key, value in options.items():
        made[key] = value
    return made


def contents(source, minibatch, streams, are_cut):
    """Of each stream: its name, the counts, whether a sweep ends, and the sequences."""
    shown = []
    for name, _, dim, is_sparse in streams:
        info = source.stream_info(name)
        if info in minibatch:
            part = minibatch[info]
            data = pieces(part) if are_cut else sequences(part, dim, is_sparse)
            shown.append([name, part.num_sequences, part.num_samples, part.end_of_sweep, data])
    return shown


def sequences(part, dim, is_sparse):
    """The sequences, dense."""
    found = part.as_sequences(C.sequence.input_variable(dim, is_sparse=is_sparse))
    return [s.toarray() if hasattr(s, "toarray") else s for s in found]


def pieces(part):
    """Pieces of sequences, which CNTK does not take apart: where each begins, and its steps."""
    data = part.asarray()
    whole = [[2] + [1] * (data.shape[1] - 1)] * len(data)
    kinds = [row[row > 0] for row in np.array(getattr(part, "mask", whole))]
    return [[kind, data[i, : len(kind)]] for i, kind in enumerate(kinds)]


def minibatches(make, streams, sizes, parts=(1,), resumed_after=None, are_cut=False):
    """What the minibatches of these sizes contain, for each worker; `resumed_after` some a new source goes on.

    `are_cut`: whether the source cuts sequences into pieces.
    """
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
                shown.append(contents(source, minibatch, streams, are_cut))
    return shown
