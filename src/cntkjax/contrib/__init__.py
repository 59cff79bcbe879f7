"""CNTK's contributed packages, as far as they are part of this one: crosstalkcaffe's
blocks, deeprl and netopt."""
