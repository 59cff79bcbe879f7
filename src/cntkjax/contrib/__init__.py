"""CNTK's contributed packages, as far as they are part of this one: crosstalkcaffe, deeprl and netopt."""
