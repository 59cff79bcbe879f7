"""Networks of BVLC's Caffe."""
