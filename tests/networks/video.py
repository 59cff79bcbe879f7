"""Networks of clips [channels, frames, height, width]: filters over time too, fused early, late, slowly. CNTK 2.7."""
from tests.networks.common import classify

CLIP = (1, 6, 8, 8)


def convolution3d(C):
    L = C.layers
    network = L.Sequential([L.Convolution3D(3, 4, C.relu, pad=True), L.MaxPooling((1, 2, 2), strides=(1, 2, 2)),
                            L.Convolution3D((3, 3, 3), 6, C.relu), L.GlobalAveragePooling(), L.Dense(4)])
    return classify(C, network, CLIP, 4, steps=200, rate=0.1)


def pseudo3d(C):
    """A filter over space, one over time after it, and a shortcut around both."""
    L = C.layers

    def block(filters):
        return L.Sequential([
            L.ResNetBlock(L.Sequential([L.Convolution3D((1, 3, 3), filters, C.relu, pad=True),
                                        L.Convolution3D((3, 1, 1), filters, pad=True)])), C.relu])

    network = L.Sequential([L.Convolution3D((1, 3, 3), 4, C.relu, strides=(1, 2, 2), pad=True),
                            block(4), block(4), L.GlobalAveragePooling(), L.Dense(4)])
    return classify(C, network, CLIP, 4, steps=200, rate=0.1)


def early_fusion(C):
    """The frames are the channels of the first filters."""
    L = C.layers
    network = L.Sequential([lambda x: C.reshape(x, CLIP[1:]), L.Convolution2D(3, 6, C.relu), L.MaxPooling((2, 2), 2),
                            L.Dense(12, C.relu), L.Dense(4)])
    return classify(C, network, CLIP, 4, steps=200, noise=1.5)


def late_fusion(C):
    """The same filters for the first and the last frame; the dense layers join their features."""
    L = C.layers
    tower = L.Sequential([L.Convolution2D(3, 6, C.relu), L.MaxPooling((2, 2), 2)])

    def frame(x, number):
        return C.reshape(C.slice(x, 1, number, number + 1), (1, *CLIP[2:]))

    def network(x):
        both = C.splice(tower(frame(x, 0)), tower(frame(x, CLIP[1] - 1)), axis=0)
        return L.Sequential([L.Dense(12, C.relu), L.Dense(4)])(both)

    return classify(C, network, CLIP, 4, steps=200, noise=1.5)


NETWORKS = [convolution3d, pseudo3d, early_fusion, late_fusion]
