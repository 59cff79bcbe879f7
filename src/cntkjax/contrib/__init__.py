"""The contributed packages of CNTK that are supported: crosstalkcaffe, deeprl and netopt."""
