"""Adaptive provisioning (Cerviño et al. 2012): the experiments of the paper, and its claims."""
