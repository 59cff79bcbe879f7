"""The place of CNTK's contributed packages; none is part of this one."""
