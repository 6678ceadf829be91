"""The laboratory: what policies cost on a trace, what none can undercut, and the papers' claims."""
