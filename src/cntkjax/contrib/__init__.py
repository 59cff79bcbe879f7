"""The contributed packages of CNTK that are supported: crosstalk, crosstalkcaffe, deeprl and netopt."""
