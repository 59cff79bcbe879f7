"""CNTK's command line: configurations in files, the networks that they describe, and what is done with them."""
