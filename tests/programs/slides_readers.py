"""The readers of the two talks; images are made on the spot."""

import os
import tempfile

import numpy as np
from cntk.io import (
    INFINITELY_REPEAT,
    CTFDeserializer,
    ImageDeserializer,
    MinibatchSource,
    StreamDef,
    StreamDefs,
)
from cntk.io import transforms as xforms
from PIL import Image

import cntk as C
from tests.programs.common import fix, numbers, one_hot, program, train


def picture(seed, height, width):
    """Smooth colours with some noise."""
    rows, columns = np.mgrid[:height, :width]
    waves = np.stack([rows * 3 + columns, rows + columns * 4, rows * 2 + columns * 2], axis=2)
    return ((waves + 10 * seed + 5 * numbers(height, width, 3, seed=seed)) % 256).astype(np.uint8)


def image_files(folder, count=6, classes=3):
    map_file = os.path.join(folder, "map.txt")
    with open(map_file, "w") as f:
        for i in range(count):
            path = os.path.join(folder, "%d.png" % i)
            Image.fromarray(picture(i, 24 + i, 30 - i)).save(path)
            f.write("%s\t%d\n" % (path, i % classes))
    return map_file


def create_reader(map_file, image_width, image_height, num_channels, num_classes, is_training):
    transforms = [
        xforms.crop(crop_type="center", side_ratio=0.8),
        xforms.scale(width=image_width, height=image_height, channels=num_channels, interpolations="linear"),
    ]
    return MinibatchSource(
        ImageDeserializer(
            map_file,
            StreamDefs(
                features=StreamDef(field="image", transforms=transforms),
                labels=StreamDef(field="label", shape=num_classes),
            ),
        ),
        randomize=False,
        max_sweeps=INFINITELY_REPEAT if is_training else 1,
    )


@program
def images_and_labels():
    map_file = image_files(tempfile.mkdtemp())
    reader = create_reader(map_file, 12, 10, 3, 3, True)
    x, y = C.input_variable((3, 10, 12)), C.input_variable(3)
    input_map = {x: reader.streams.features, y: reader.streams.labels}
    data = reader.next_minibatch(4, input_map=input_map)
    result = {"images": data[x].asarray(), "labels": data[y].asarray(), "samples": data[x].num_samples}
    z = fix(C.layers.Dense(3)(x / 256))
    feeds = [reader.next_minibatch(4, input_map=input_map) for _ in range(3)]
    result.update(train(z, C.cross_entropy_with_softmax(z, y), feeds, 0.1, steps=3))
    tested = create_reader(map_file, 12, 10, 3, 3, False)
    sizes = []
    while True:
        data = tested.next_minibatch(4)
        if not data:
            break
        sizes.append(data[tested.streams.features].num_samples)
    result["sweep"] = sizes
    return result


@program
def images_with_regions():
    """A composite reader: padded images, rectangles and one label for each of these."""
    folder = tempfile.mkdtemp()
    map_file, roi_file, label_file = (os.path.join(folder, n) for n in ("map.txt", "rois.txt", "labels.txt"))
    with open(image_files(folder)) as f:
        lines = f.read().splitlines()
    with open(map_file, "w") as f:
        f.writelines("%d\t%s\n" % (i, line) for i, line in enumerate(lines))
    with open(roi_file, "w") as f:
        f.writelines("%d |rois %s\n" % (i, " ".join("%.3f" % v for v in row)) for i, row in enumerate(numbers(6, 8)))
    with open(label_file, "w") as f:
        f.writelines("%d |roiLabels %s\n" % (i, " ".join("%d" % v for v in row)) for i, row in enumerate(one_hot(6, 4)))
    transforms = [
        xforms.scale(width=16, height=16, channels=3, scale_mode="pad", pad_value=114, interpolations="linear")
    ]
    image_source = ImageDeserializer(map_file, StreamDefs(features=StreamDef(field="image", transforms=transforms)))
    roi_source = CTFDeserializer(roi_file, StreamDefs(rois=StreamDef(field="rois", shape=8, is_sparse=False)))
    label_source = CTFDeserializer(
        label_file, StreamDefs(roiLabels=StreamDef(field="roiLabels", shape=4, is_sparse=False))
    )
    reader = MinibatchSource([image_source, roi_source, label_source], max_samples=12, randomize=False)
    data = reader.next_minibatch(4)
    return {name: data[reader.streams[name]].asarray() for name in ("features", "rois", "roiLabels")}
