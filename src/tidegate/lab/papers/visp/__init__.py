"""VISP (Hochreiner et al.): the experiments of the paper, and its claims."""
