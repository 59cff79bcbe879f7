"""Networks from descriptions, for tests."""

from cntkjax.brainscript.language import build_network
from cntkjax.configuration.source import Text

MLP = """
    model = Sequential (DenseLayer {4, activation=Sigmoid} : LinearLayer {2})  # two layers
    features = Input {3}
    labels = Input {2}
    z = model (features)
    ce = CrossEntropyWithSoftmax (labels, z)
    errs = ClassificationError (labels, z, tag='evaluation')
    featureNodes = (features) ; labelNodes = (labels)
    criterionNodes = (ce)
    outputNodes = (z)
"""


def build(text, **options):
    return build_network(Text("net.bs", text), options.pop("scope", {}), **options)
