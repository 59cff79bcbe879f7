"""CNTK's compiled part by its own name, for programs that import it before ``cntk``: that puts it into this place."""
import cntk
