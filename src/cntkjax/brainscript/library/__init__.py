"""The library of BrainScript and NDL: operations of networks in terms of the package's own."""

from . import criteria, elementwise, leaves, matrix, sequences
