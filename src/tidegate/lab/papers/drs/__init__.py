"""DRS (Fu et al. 2015): the experiments of the paper, and its claims."""
