"""FUGU (Heinze et al. 2014): the experiments of the paper, and its claims."""
