"""The part of CNTK's converter of Caffe models that the networks need which MMdnn writes for CNTK."""
